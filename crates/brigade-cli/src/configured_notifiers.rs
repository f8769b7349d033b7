//! The notifiers of the configuration: one command, or tables by name.
//!
//! ```toml
//! notify = ["notify-send", "Brigade"]
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brigade_model::duration::parse_duration;
use brigade_model::name::SessionName;
use brigade_model::spec::RequestedNotifier;
use brigade_server::notifications::notification::NotificationKind;
use brigade_server::notifications::notifier::{
    NOTIFIERS_MAX, Notifier, NotifierSet, NotifierTarget, TaskSelection, is_notifier_name,
};
use brigade_server::notifications::retry_policy::RetryPolicy;
use brigade_server::notifications::webhook::{Webhook, WebhookText};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::config_values::is_variable_name;

/// The name of the notifier that is one command.
const DEFAULT_NAME: &str = "default";

/// The longest time of one attempt. A longer one is a mistake.
const TIMEOUT_MAX: Duration = Duration::from_secs(10 * 60);
/// The longest time of retries. A longer one is a mistake.
const GIVE_UP_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The key `notify` of the configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum NotifySetting {
    /// A command for all kinds of events.
    Command(Vec<String>),
    Notifiers(BTreeMap<String, NotifierConfig>),
}

/// One table of `notify`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NotifierConfig {
    /// The program with its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) command: Vec<String>,
    /// The URL of a webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// The file with the URL of a webhook, if the URL is a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url_file: Option<PathBuf>,
    /// The file with the secret that signs requests to the webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret_file: Option<PathBuf>,
    /// The variable of the daemon with that secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret_env: Option<String>,
    /// Plain HTTP is allowed to other hosts than this machine.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) allow_http: bool,
    /// The kinds of events. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) on: Option<BTreeSet<NotificationKind>>,
    /// The tasks whose events it gets. Default: `top_level`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tasks: Option<ConfiguredTasks>,
    /// The workspaces whose events it gets. Default: all.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) sessions: BTreeSet<String>,
    /// The time of one attempt. Default: `30s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<String>,
    /// The pause after the first failed attempt. Default: `1s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_pause: Option<String>,
    /// The longest pause. Default: `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_pause: Option<String>,
    /// The age at which a notification is given up. Default: `24h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) give_up_after: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConfiguredTasks {
    TopLevel,
    All,
    Requested,
}

impl Default for NotifySetting {
    fn default() -> Self {
        Self::Notifiers(BTreeMap::new())
    }
}

impl<'de> Deserialize<'de> for NotifySetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SettingVisitor;

        impl<'de> Visitor<'de> for SettingVisitor {
            type Value = NotifySetting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a command such as [\"notify-send\", \"Brigade\"], or tables by name")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, words: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(words)).map(NotifySetting::Command)
            }

            fn visit_map<A: MapAccess<'de>>(self, tables: A) -> Result<Self::Value, A::Error> {
                let tables = BTreeMap::deserialize(MapAccessDeserializer::new(tables));
                tables.map(NotifySetting::Notifiers)
            }
        }

        deserializer.deserialize_any(SettingVisitor)
    }
}

impl NotifySetting {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the notifiers. The error names the wrong key and quotes no value.
    pub(crate) fn notifiers(&self) -> Result<NotifierSet, String> {
        match self {
            Self::Command(command) => {
                let target = command_target(command)?;
                Ok(NotifierSet::new([Notifier::new(DEFAULT_NAME, target)]))
            }
            Self::Notifiers(tables) if tables.len() > NOTIFIERS_MAX => {
                Err(format!("there are more than {NOTIFIERS_MAX} notifiers"))
            }
            Self::Notifiers(tables) => {
                let notifiers = tables.iter().map(|(name, config)| {
                    if !is_notifier_name(name) {
                        let problem = "the name of a notifier has 1 to 64 letters, digits, - and _";
                        return Err(problem.to_owned());
                    }
                    config.to_notifier(name).map_err(|problem| format!("{name}: {problem}"))
                });
                Ok(NotifierSet::new(notifiers.collect::<Result<Vec<_>, _>>()?))
            }
        }
    }
}

impl NotifierConfig {
    fn to_notifier(&self, name: &str) -> Result<Notifier, String> {
        let mut notifier = Notifier::new(name, self.target()?);
        if let Some(on) = &self.on {
            if on.is_empty() {
                return Err("on: name at least one of ended, question and approval".to_owned());
            }
            notifier.on.clone_from(on);
        }
        for session in &self.sessions {
            let parsed = session.parse::<SessionName>();
            parsed.map_err(|refusal| format!("sessions: {}", refusal.message))?;
        }
        notifier.sessions.clone_from(&self.sessions);
        notifier.tasks = match self.tasks {
            None | Some(ConfiguredTasks::TopLevel) => TaskSelection::TopLevel,
            Some(ConfiguredTasks::All) => TaskSelection::All,
            Some(ConfiguredTasks::Requested) => TaskSelection::Requested,
        };
        let timeout = parse_bounded("timeout", self.timeout.as_deref(), TIMEOUT_MAX)?;
        notifier.timeout = timeout.unwrap_or(notifier.timeout);
        notifier.retry = self.retry_policy(notifier.retry)?;
        Ok(notifier)
    }

    fn target(&self) -> Result<NotifierTarget, String> {
        let secret = match (&self.secret_file, &self.secret_env) {
            (Some(_), Some(_)) => {
                return Err("secret_file and secret_env name two secrets; write one".to_owned());
            }
            (Some(file), None) => Some(WebhookText::File(absolute("secret_file", file)?)),
            (None, Some(name)) if !is_variable_name(name) => {
                return Err("secret_env: it is not the name of a variable".to_owned());
            }
            (None, Some(name)) => Some(WebhookText::Env(name.clone())),
            (None, None) => None,
        };
        let url = match (&self.url, &self.url_file) {
            (Some(_), Some(_)) => {
                return Err("url and url_file name two URLs; write one".to_owned());
            }
            (Some(url), None) => WebhookText::Plain(url.clone().into()),
            (None, Some(file)) => WebhookText::File(absolute("url_file", file)?),
            (None, None) if secret.is_some() || self.allow_http => {
                return Err("url: name the URL of the webhook".to_owned());
            }
            (None, None) => return command_target(&self.command),
        };
        if !self.command.is_empty() {
            return Err("command and url are two receivers; write a table for each".to_owned());
        }
        let webhook = Webhook { url, secret, allow_http: self.allow_http };
        webhook.check()?;
        Ok(NotifierTarget::Webhook(webhook))
    }

    fn retry_policy(&self, default: RetryPolicy) -> Result<RetryPolicy, String> {
        let parse = |key, text: &Option<String>| parse_bounded(key, text.as_deref(), GIVE_UP_MAX);
        let first_pause = parse("first_pause", &self.first_pause)?.unwrap_or(default.first_pause);
        let max_pause = parse("max_pause", &self.max_pause)?.unwrap_or(default.max_pause);
        if max_pause < first_pause {
            return Err("max_pause: it is shorter than first_pause".to_owned());
        }
        let give_up_after = parse("give_up_after", &self.give_up_after)?;
        let give_up_after = give_up_after.unwrap_or(default.give_up_after);
        Ok(RetryPolicy { first_pause, max_pause, give_up_after })
    }
}

fn absolute(key: &str, file: &Path) -> Result<PathBuf, String> {
    match file.is_absolute() {
        true => Ok(file.to_owned()),
        // The daemon has another working directory.
        false => Err(format!("{key}: it is not an absolute path")),
    }
}

fn command_target(command: &[String]) -> Result<NotifierTarget, String> {
    match command.first().map(String::as_str) {
        None | Some("") => {
            return Err(
                "command: name a program, such as [\"notify-send\", \"Brigade\"]".to_owned()
            );
        }
        // The daemon has another working directory.
        Some(program) if program.contains('/') && !Path::new(program).is_absolute() => {
            return Err(
                "command: write the absolute path of the program, or only its name".to_owned()
            );
        }
        Some(_) => {}
    }
    if command.iter().any(|word| word.contains('\0')) {
        return Err("command: a word has a null character".to_owned());
    }
    Ok(NotifierTarget::Command(command.to_vec()))
}

/// Parses a time above zero.
fn parse_bounded(
    key: &str,
    text: Option<&str>,
    longest: Duration,
) -> Result<Option<Duration>, String> {
    let Some(text) = text else { return Ok(None) };
    let time = parse_duration(text).map_err(|problem| format!("{key}: {problem}"))?;
    if time.is_zero() {
        return Err(format!("{key}: it is 0; write a time such as 10s"));
    }
    if time > longest {
        return Err(format!("{key}: it is longer than {} minutes", longest.as_secs() / 60));
    }
    Ok(Some(time))
}

/// Returns the request of `--notify` or `--notify=NAME`.
pub(crate) fn to_requested_notifier(flag: Option<&Option<String>>) -> Option<RequestedNotifier> {
    flag.map(|name| match name {
        None => RequestedNotifier::All,
        Some(name) => RequestedNotifier::Named(name.as_str().into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Config {
        notify: NotifySetting,
    }

    fn notifiers(text: &str) -> Result<NotifierSet, String> {
        let config: Config = toml::from_str(text).map_err(|error| error.to_string())?;
        config.notify.notifiers()
    }

    #[test]
    fn one_command_is_a_notifier_for_everything() {
        let target = NotifierTarget::Command(vec!["true".to_owned(), "x".to_owned()]);
        let expect = NotifierSet::new([Notifier::new("default", target)]);
        assert_eq!(notifiers("notify = [\"true\", \"x\"]"), Ok(expect));
        assert_eq!(NotifySetting::default().notifiers(), Ok(NotifierSet::default()));
    }

    #[test]
    fn a_table_selects_events_and_sets_times() {
        let text = r#"
            [notify.desktop]
            command = ["/bin/true"]
            on = ["approval", "question"]
            tasks = "all"
            sessions = ["kitchen"]
            timeout = "5s"
            first_pause = "10ms"
            max_pause = "1s"
            give_up_after = "1m"
        "#;
        let target = NotifierTarget::Command(vec!["/bin/true".to_owned()]);
        let expect = Notifier {
            on: [NotificationKind::Approval, NotificationKind::Question].into(),
            tasks: TaskSelection::All,
            sessions: ["kitchen".to_owned()].into(),
            timeout: Duration::from_secs(5),
            retry: RetryPolicy {
                first_pause: Duration::from_millis(10),
                max_pause: Duration::from_secs(1),
                give_up_after: Duration::from_secs(60),
            },
            ..Notifier::new("desktop", target)
        };
        assert_eq!(notifiers(text), Ok(NotifierSet::new([expect])));
    }

    #[test]
    fn a_webhook_has_a_url_and_a_secret_that_is_not_in_the_file() {
        let text = "[notify.hook]\nurl = \"https://a.example/x\"\nsecret_file = \"/secret\"\n";
        let webhook = Webhook {
            url: WebhookText::Plain("https://a.example/x".to_owned().into()),
            secret: Some(WebhookText::File("/secret".into())),
            allow_http: false,
        };
        let expect = Notifier::new("hook", NotifierTarget::Webhook(webhook));
        assert_eq!(notifiers(text), Ok(NotifierSet::new([expect])));
        assert!(notifiers("[notify.hook]\nurl_file = \"/url\"\n").is_ok());
    }

    #[test]
    fn wrong_notifiers_are_refused_with_the_key() {
        for (wrong, expect) in [
            ("notify = []", "command: name a program"),
            ("notify = [\"bin/x\"]", "absolute path"),
            ("notify = 5", "a command such as"),
            ("[notify.a]", "a: command: name a program"),
            ("[notify.\"a b\"]\ncommand = [\"x\"]", "the name of a notifier"),
            ("[notify.a]\ncommand = [\"x\"]\non = []", "a: on: name at least one"),
            ("[notify.a]\ncommand = [\"x\"]\non = [\"begun\"]", "unknown variant"),
            ("[notify.a]\ncommand = [\"x\"]\ntimeout = \"0s\"", "a: timeout: it is 0"),
            ("[notify.a]\ncommand = [\"x\"]\ntimeout = \"2h\"", "longer than 10 minutes"),
            ("[notify.a]\ncommand = [\"x\"]\nmax_pause = \"1ms\"", "max_pause: it is shorter"),
            ("[notify.a]\nurl = \"http://a.example/key\"", "a: url: over http"),
            ("[notify.a]\nurl = \"key\"", "a: url: write a URL"),
            ("[notify.a]\ncommand = [\"x\"]\nurl = \"https://a.example\"", "two receivers"),
            ("[notify.a]\nsecret_env = \"A\"\nsecret_file = \"/a\"", "two secrets"),
            ("[notify.a]\nurl = \"https://a.example\"\nsecret_file = \"a\"", "absolute path"),
            ("[notify.a]\nurl = \"https://a.example\"\nsecret_env = \"a b\"", "a variable"),
            ("[notify.a]\nsecret_env = \"A\"", "a: url: name the URL"),
            ("[notify.a]\ncommnd = [\"x\"]", "unknown field"),
        ] {
            let error = notifiers(wrong).unwrap_err();
            assert!(error.contains(expect), "{wrong}: {error}");
        }
        let table = |number| format!("[notify.n{number}]\ncommand = [\"x\"]\n");
        let many: String = (0..=NOTIFIERS_MAX).map(table).collect();
        assert!(notifiers(&many).unwrap_err().contains("more than 16"));
    }
}
