//! Checks of an adapter file that concern several of its fields.

use crate::event_rules::EventRule;
use crate::login_marks::LoginMarks;
use crate::placeholders::WordList;
use crate::turn_outcome::ClosingMark;

use super::{
    ACCESS_WORD, AdapterEnvironment, AdapterFault, CliAdapter, PromptChannel, SessionIdSource,
};

/// The maximum length of an agent's name.
pub(crate) const NAME_MAX: usize = 32;

/// Checks that a character may be part of an agent's name.
pub(crate) fn is_name_char(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

/// The names of an agent, as its file has them.
pub(crate) struct AgentNames<'a> {
    pub(crate) name: &'a str,
    pub(crate) title: &'a str,
    pub(crate) program: &'a str,
}

impl AgentNames<'_> {
    pub(crate) fn validate(&self) -> Result<(), AdapterFault> {
        let name = self.name;
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_name_char) {
            return fault("name", "use 1 to 32 lower-case letters, digits and `-`");
        }
        if self.title.trim().is_empty() {
            return fault("title", "write the name of the agent");
        }
        if self.program.trim().is_empty() {
            return fault("program", "write the name of the program");
        }
        Ok(())
    }
}

impl AdapterEnvironment {
    pub(crate) fn validate(&self) -> Result<(), AdapterFault> {
        let is_wrong = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
        let mut names = self.set.keys().chain(&self.pass);
        match names.find(is_wrong) {
            Some(name) => fault("environment", &format!("`{name}` is not the name of a variable")),
            None => Ok(()),
        }
    }
}

impl CliAdapter {
    pub(super) fn validate(&self) -> Result<(), AdapterFault> {
        AgentNames { name: &self.name, title: &self.title, program: &self.program }.validate()?;
        self.validate_arguments("start", &self.start)?;
        self.validate_arguments("resume", &self.resume)?;
        self.validate_session()?;
        self.validate_input()?;
        self.validate_answers()?;
        if self.access.is_none() && self.answers.is_none() {
            return fault("access", "add the arguments that limit it, since it asks for nothing");
        }
        self.environment.validate()?;
        validate_login(self.login.as_ref())?;
        self.validate_events()
    }

    fn validate_arguments(&self, field: &str, list: &WordList) -> Result<(), AdapterFault> {
        let names = list.placeholders();
        for name in &names {
            if !["prompt", "session_id", "model", "access", "brigade", "budget"].contains(name) {
                let problem = format!("{{{name}}} is not a placeholder of a command line");
                return fault(field, &problem);
            }
        }
        let has_prompt = names.contains(&"prompt");
        match (has_prompt, self.prompt == PromptChannel::Argument) {
            (false, true) => return fault(field, "add {prompt}, since the prompt is an argument"),
            (true, false) => {
                return fault(field, "remove {prompt}, since the prompt is not an argument");
            }
            _ => {}
        }
        if list.splice(ACCESS_WORD, &[]).placeholders().contains(&"access") {
            return fault(field, "write {access} as a word of its own, outside of a group");
        }
        match (names.contains(&"access"), self.access.is_some()) {
            (false, true) => fault(field, "add the word {access}, or remove the table `access`"),
            (true, false) => fault(field, "remove {access}, or add the table `access`"),
            _ => Ok(()),
        }
    }

    fn validate_session(&self) -> Result<(), AdapterFault> {
        if !self.resume.placeholders().contains(&"session_id") {
            return fault("resume", "add {session_id}");
        }
        let in_start = self.start.placeholders().contains(&"session_id");
        let is_reported = self.events.iter().any(|rule| rule.session.is_some());
        match self.session_id {
            SessionIdSource::Chosen if !in_start => {
                fault("start", "add {session_id}, since Brigade chooses it")
            }
            SessionIdSource::Reported if in_start => {
                fault("start", "remove {session_id}, since the program reports it")
            }
            SessionIdSource::Reported if !is_reported => {
                fault("events", "add a rule with `session`, since the program reports its id")
            }
            _ => Ok(()),
        }
    }

    fn validate_input(&self) -> Result<(), AdapterFault> {
        let names: Vec<&str> = self.input.iter().flat_map(|line| line.placeholders()).collect();
        if names.iter().any(|name| *name != "prompt") {
            return fault("input", "use no placeholder except {prompt}");
        }
        match (self.prompt == PromptChannel::StdinJson, names.contains(&"prompt")) {
            (true, false) => fault("input", "add a line with {prompt}"),
            (false, _) if !self.input.is_empty() => {
                fault("input", "remove the lines, or set `prompt` to \"stdin_json\"")
            }
            _ => Ok(()),
        }
    }

    fn validate_answers(&self) -> Result<(), AdapterFault> {
        let asks =
            self.events.iter().any(|rule| rule.permission.is_some() || rule.request.is_some());
        let Some(answers) = &self.answers else {
            return match asks {
                true => fault("answers", "add the answers to requests of the program"),
                false => Ok(()),
            };
        };
        if self.prompt != PromptChannel::StdinJson {
            return fault("answers", "set `prompt` to \"stdin_json\", since answers are lines");
        }
        let templates = [
            ("answers.allow", &answers.allow, ["request_id", "arguments"]),
            ("answers.deny", &answers.deny, ["request_id", "reason"]),
            ("answers.unsupported", &answers.unsupported, ["request_id", "reason"]),
        ];
        for (field, template, allowed) in templates {
            let names = template.placeholders();
            if let Some(name) = names.iter().find(|name| !allowed.contains(name)) {
                return fault(field, &format!("{{{name}}} has no value here"));
            }
            if !names.contains(&"request_id") {
                return fault(field, "add {request_id}");
            }
        }
        Ok(())
    }

    fn validate_events(&self) -> Result<(), AdapterFault> {
        let has_totals = self.events.iter().any(EventRule::has_total_usage);
        for (index, rule) in self.events.iter().enumerate() {
            if !rule.has_parts() {
                return fault(&format!("events[{index}]"), "add a part, such as `text`");
            }
            let field = format!("events[{index}].usage.call");
            match (rule.has_call_usage(), rule.has_total_usage()) {
                (true, true) => return fault(&field, "remove it, or remove `cumulative`"),
                (true, false) if rule.has_cost() => {
                    return fault(&field, "remove `cost`: the cumulative usage has it");
                }
                (true, false) if !has_totals => {
                    return fault(&field, "add a rule with a cumulative usage, which contains it");
                }
                _ => {}
            }
        }
        let has_closing = self.events.iter().any(|rule| rule.closed.is_some());
        match (self.closing, has_closing) {
            (ClosingMark::Event, false) => fault("events", "add a rule with `closed`"),
            (ClosingMark::EndOfOutput, true) => {
                fault("closing", "set it to \"event\", since a rule has `closed`")
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn fault(field: &str, problem: &str) -> Result<(), AdapterFault> {
    Err(AdapterFault { field: field.to_owned(), problem: problem.to_owned() })
}

/// Checks that each file with credentials has an absolute path.
pub(crate) fn validate_login(login: Option<&LoginMarks>) -> Result<(), AdapterFault> {
    match login.and_then(LoginMarks::find_relative_path) {
        None => Ok(()),
        Some(path) => {
            let problem =
                format!("{path:?} is not absolute; begin it with `/`, `~/` or a variable");
            fault("login.files", &problem)
        }
    }
}
