//! The working directory, environment and identity of a process, without secrets of the runtime.

use std::fs;

use brigade_model::outcome::{Failure, Outcome};
use brigade_model::work::EnvValue;
use brigade_process::PeerProcess;
use brigade_runtime::{NewTask, PeerOrigin, ProcessOptions, Runtime};

use crate::support::*;

fn variables(text: &str) -> Vec<(String, String)> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_has_its_address_and_only_the_passed_variables() {
    let kitchen = kitchen().await;
    let task = NewTask::program(["env"]).env("SPICE", EnvValue::Text("pepper".into()));
    let task = kitchen.session.spawn(task).await.unwrap();
    let seen = variables(&report(&kitchen.task(&task).await).tail);
    let value = |name: &str| seen.iter().find(|(other, _)| other == name).map(|(_, v)| v.as_str());
    assert_eq!(value("BRIGADE_TASK"), Some("kitchen/process:1"));
    assert_eq!(value("SPICE"), Some("pepper"));
    assert_eq!(value("PATH"), std::env::var("PATH").ok().as_deref());
    // Cargo sets this for every test, as a secret could be set for a runtime.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert_eq!(value("CARGO_MANIFEST_DIR"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configured_variables_are_passed_on() {
    let dir = tempfile::tempdir().unwrap();
    let options = ProcessOptions::new(dir.path()).pass_env("CARGO_*");
    let runtime = Runtime::builder().processes(options).start().await.unwrap();
    let session = runtime.session("kitchen").await.unwrap();
    let task = session.spawn(NewTask::shell("echo $CARGO_MANIFEST_DIR")).await.unwrap();
    let printed = report(&task.wait().await.unwrap().outcome).tail;
    assert_eq!(printed.trim_end(), std::env::var("CARGO_MANIFEST_DIR").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_to_secrets_reach_the_process_and_nothing_else() {
    let kitchen = kitchen().await;
    let secret = kitchen.dir.path().join("secret");
    std::fs::write(&secret, "s3cr3t-s4lt\n").unwrap();
    let reference = EnvValue::FromFile(secret.to_str().unwrap().into());
    let text = "test \"$KEY\" = s3cr3t-s4lt".replace("s3cr3t-s4lt", "\"$(cat secret)\"");
    let task = NewTask::shell(&text).cwd(kitchen.dir.path()).env("KEY", reference);
    let task = kitchen.session.spawn(task).await.unwrap();
    assert_eq!(kitchen.task(&task).await.to_string(), "succeeded");
    let row = task.get().await.unwrap();
    assert!(!format!("{row:?}").contains("s3cr3t"), "{row:?}");
    let stored = kitchen.store.task(kitchen.session.id(), task.no()).await.unwrap();
    assert!(!format!("{stored:?}").contains("s3cr3t"));
    std::fs::remove_file(&secret).unwrap();
    let grepped = std::process::Command::new("grep")
        .args(["-r", "s3cr3t", kitchen.dir.path().to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&grepped.stdout), "", "it is kept nowhere");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unset_reference_fails_the_process_before_it_runs() {
    let kitchen = kitchen().await;
    let nowhere = EnvValue::FromEnv("NO_SUCH_VARIABLE".into());
    let task = NewTask::shell("touch ran").cwd(kitchen.dir.path()).env("KEY", nowhere);
    let task = kitchen.session.spawn(task).await.unwrap();
    let outcome = kitchen.task(&task).await;
    let Outcome::Failed(failed) = &outcome else { panic!("{outcome:?}") };
    let Failure::Error(error) = &failed.failure else { panic!("{failed:?}") };
    let text = &error.message;
    assert!(text.contains("NO_SUCH_VARIABLE of the runtime's environment"), "{text}");
    assert!(!kitchen.dir.path().join("ran").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_has_its_working_directory_and_default_signals() {
    if !brigade_process::IS_COMPLETE {
        return;
    }
    let kitchen = kitchen().await;
    let text = "pwd; grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; ls /proc/self/fd | wc -l";
    let task = NewTask::shell(text).cwd("/usr");
    let task = kitchen.session.spawn(task).await.unwrap();
    let printed = report(&kitchen.task(&task).await).tail;
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], "/usr");
    assert_eq!(lines[1], "SigBlk:\t0000000000000000");
    // The C library reserves two signal numbers and always ignores them here.
    let ignored = u64::from_str_radix(lines[2].trim_start_matches("SigIgn:\t"), 16).unwrap();
    assert_eq!(ignored & !0x1_8000_0000, 0, "{}", lines[2]);
    // Its three streams and the directory that is being listed.
    assert_eq!(lines[4].trim(), "4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unusable_state_directory_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = ProcessOptions::new(file.path().join("below"));
    let refusal = Runtime::builder().processes(options).start().await.unwrap_err();
    assert!(refusal.to_string().contains("processes cannot be run here"), "{refusal}");
}

/// The process connects at once, from a descendant that is as detached as possible.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_descendant_of_a_process_is_its_task_from_the_start() {
    if !brigade_process::IS_COMPLETE {
        return;
    }
    let kitchen = kitchen().await;
    let path = kitchen.dir.path().join("meeting");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let connect = "import socket, sys; s = socket.socket(socket.AF_UNIX); \
                   s.connect(sys.argv[1]); s.recv(1)";
    let connect = format!("python3 -c '{connect}' {}", path.display());
    let script = kitchen.dir.path().join("far.sh");
    fs::write(&script, format!("({connect}; touch $1) &\n")).unwrap();
    // The process waits for its descendant, since orphans are ended.
    let far = format!(
        "setsid env -i PATH=$PATH sh {} over; until [ -e over ]; do sleep 0.01; done; rm over",
        script.display()
    );
    for text in [connect.as_str(), &far].repeat(5) {
        let task =
            kitchen.session.spawn(NewTask::shell(text).cwd(kitchen.dir.path())).await.unwrap();
        let (stream, _) = listener.accept().unwrap();
        let peer = PeerProcess::from_socket(&stream).unwrap().expect("it waits for an answer");
        let origin = kitchen.runtime.origin_of(&peer);
        let PeerOrigin::Task(found, attempt) = origin else { panic!("{origin:?}: {text}") };
        assert_eq!((found.no, attempt.0), (task.no(), 1));
        let session = kitchen.runtime.task_session(found, attempt).await.unwrap();
        assert!(session.list().is_empty(), "it sees only what it started itself");
        assert!(session.get(task.no()).await.is_err());
        drop(stream);
        kitchen.task(&task).await;
        assert_eq!(kitchen.runtime.origin_of(&peer), PeerOrigin::Unknown, "it is dead");
    }
    let _own = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let own = PeerProcess::from_socket(&stream).unwrap().unwrap();
    assert_eq!(kitchen.runtime.origin_of(&own), PeerOrigin::Outside);
}
