//! The real programs of other vendors as agents of Brigade: a real runtime, real processes, and a
//! model on loopback. `cargo xtask test --only clients` installs the programs.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod loopback_model;
mod process_scan;
mod programs;
mod scenes;
mod support;

use programs::Client;

/// Makes the tests of one client: each scene that it can play.
macro_rules! test_client {
    ($name:ident, $client:expr, [$($scene:ident),* $(,)?]) => {
        mod $name {
            $(
                #[tokio::test(flavor = "multi_thread")]
                #[ignore = "needs the program: cargo xtask test --only clients"]
                async fn $scene() {
                    crate::scenes::$scene(&$client).await;
                }
            )*
        }
    };
}

test_client!(
    claude,
    crate::Client::CLAUDE,
    [
        a_turn_ends_with_its_text,
        a_call_is_in_the_transcript,
        tools_of_brigade_are_offered,
        an_approval_allows_a_call,
        an_approval_denies_a_call,
        a_rule_denies_a_call,
        an_approval_outlives_the_runtime,
        a_message_is_the_next_turn_of_the_same_session,
        a_stop_leaves_no_process,
        an_error_of_the_model_is_a_failure,
        a_killed_program_is_a_failure,
        the_next_runtime_goes_on_in_mid_turn,
    ]
);

test_client!(
    codex,
    crate::Client::CODEX,
    [
        a_turn_ends_with_its_text,
        a_call_is_in_the_transcript,
        tools_of_brigade_are_offered,
        rules_limit_the_access,
        tools_of_brigade_need_no_access,
        a_message_is_the_next_turn_of_the_same_session,
        a_stop_leaves_no_process,
        an_error_of_the_model_is_a_failure,
        a_killed_program_is_a_failure,
        the_next_runtime_goes_on_in_mid_turn,
    ]
);

test_client!(
    gemini,
    crate::Client::GEMINI,
    [
        a_turn_ends_with_its_text,
        a_call_is_in_the_transcript,
        rules_limit_the_access,
        rules_forbid_commands,
        a_message_is_the_next_turn_of_the_same_session,
        a_stop_leaves_no_process,
        an_error_of_the_model_is_a_failure,
        a_killed_program_is_a_failure,
        the_next_runtime_goes_on_in_mid_turn,
    ]
);

test_client!(
    opencode,
    crate::Client::OPENCODE,
    [
        a_turn_ends_with_its_text,
        a_call_is_in_the_transcript,
        tools_of_brigade_are_offered,
        rules_limit_the_access,
        rules_forbid_commands,
        a_message_is_the_next_turn_of_the_same_session,
        a_stop_leaves_no_process,
        an_error_of_the_model_is_a_failure,
        a_killed_program_is_a_failure,
        the_next_runtime_goes_on_in_mid_turn,
    ]
);

test_client!(
    qwen,
    crate::Client::QWEN,
    [
        a_turn_ends_with_its_text,
        a_call_is_in_the_transcript,
        tools_of_brigade_are_offered,
        rules_limit_the_access,
        rules_forbid_commands,
        tools_of_brigade_need_no_access,
        a_message_is_the_next_turn_of_the_same_session,
        a_stop_leaves_no_process,
        an_error_of_the_model_is_a_failure,
        a_killed_program_is_a_failure,
        the_next_runtime_goes_on_in_mid_turn,
    ]
);

test_client!(
    claude_acp,
    crate::Client::CLAUDE_ACP,
    [
        a_turn_ends_with_its_text,
        a_call_is_in_the_transcript,
        tools_of_brigade_are_offered,
        an_approval_allows_a_call,
        an_approval_denies_a_call,
        a_rule_denies_a_call,
        an_approval_outlives_the_runtime,
        a_message_is_the_next_turn_of_the_same_session,
        a_stop_leaves_no_process,
        an_error_of_the_model_is_a_failure,
        a_killed_program_is_a_failure,
        the_next_runtime_goes_on_in_mid_turn,
    ]
);

test_client!(
    codex_acp,
    crate::Client::CODEX_ACP,
    [
        a_turn_ends_with_its_text,
        a_call_is_in_the_transcript,
        tools_of_brigade_are_offered,
        a_message_is_the_next_turn_of_the_same_session,
        a_stop_leaves_no_process,
        an_error_of_the_model_is_a_failure,
        a_killed_program_is_a_failure,
        the_next_runtime_goes_on_in_mid_turn,
    ]
);

test_client!(
    gemini_acp,
    crate::Client::GEMINI_ACP,
    [
        a_turn_ends_with_its_text,
        a_call_is_in_the_transcript,
        tools_of_brigade_are_offered,
        an_approval_allows_a_call,
        an_approval_denies_a_call,
        a_rule_denies_a_call,
        an_approval_outlives_the_runtime,
        a_message_repeats_the_task,
        a_stop_leaves_no_process,
        an_error_of_the_model_is_a_failure,
        a_killed_program_is_a_failure,
        the_next_runtime_goes_on_in_mid_turn,
    ]
);

test_client!(
    opencode_acp,
    crate::Client::OPENCODE_ACP,
    [
        a_turn_ends_with_its_text,
        a_call_is_in_the_transcript,
        tools_of_brigade_are_offered,
        an_approval_allows_a_call,
        an_approval_denies_a_call,
        a_rule_denies_a_call,
        an_approval_outlives_the_runtime,
        a_message_is_the_next_turn_of_the_same_session,
        a_stop_leaves_no_process,
        an_error_of_the_model_is_a_failure,
        a_killed_program_is_a_failure,
        the_next_runtime_goes_on_in_mid_turn,
    ]
);

test_client!(
    qwen_acp,
    crate::Client::QWEN_ACP,
    [
        a_turn_ends_with_its_text,
        a_call_is_in_the_transcript,
        tools_of_brigade_are_offered,
        an_approval_allows_a_call,
        an_approval_denies_a_call,
        a_rule_denies_a_call,
        an_approval_outlives_the_runtime,
        a_message_is_the_next_turn_of_the_same_session,
        a_stop_leaves_no_process,
        an_error_of_the_model_is_a_failure,
        a_killed_program_is_a_failure,
        the_next_runtime_goes_on_in_mid_turn,
    ]
);
