//! Replies that exceed a line of the protocol.

use crate::story_env::StoryEnv;

#[test]
fn matches_that_exceed_a_reply_are_all_printed() {
    let story = StoryEnv::new();
    // JSON needs six bytes for each of these.
    let script = "head -c 6000000 /dev/zero | tr '\\000' '\\001' | fold -w 1500";
    story.ok(["exec", "-d", "--shell", script]);
    story.ok(["wait", "1"]);
    let ran = story.run(["logs", "--grep", ".", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.out.lines().count(), 4_000);
    assert_eq!(ran.err, "");
}
