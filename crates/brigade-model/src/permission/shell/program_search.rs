//! Searches a text for the programs that it may run, behind wrappers and options.
//!
//! A pattern is compared with each program word by word: its words must be the program and the next
//! words that are not options. `git push*` thus matches `timeout 9 git -C x push`, but not `git
//! commit -m push`. An unknown word may be any word.

use super::known_programs::{
    KEYWORDS, NAMING_KEYWORDS, RENAMING_VARIABLES, SHELLS, VARIABLE_SETTERS, WrapperProgram,
    find_wrapper, has_all_value_options, is_harmless_setting, is_loose_runner, value_options,
};
use super::parser::{ParsedCommandLine, ShellWord, SimpleCommand};
use crate::permission::glob::{self, StarReach};

/// Returns whether a pattern may match a command that a text runs.
pub(in crate::permission) fn may_run(pattern: &str, text: &str) -> bool {
    match WordPattern::of(pattern) {
        Some(pattern) => {
            pattern.matches_line(&ParsedCommandLine::parse(text), &ShellContext::default())
        }
        None => false,
    }
}

/// Returns the option that makes git do something else than its words say, unless the pattern
/// spells it out.
pub(in crate::permission) fn overriding_option(pattern: &str, text: &str) -> Option<&'static str> {
    let line = ParsedCommandLine::parse(text);
    let command = line.commands.first()?;
    let start = command.argv.iter().position(|word| !word.literal.contains('='))?;
    let words = &command.argv[start..];
    if words.first()?.program_name() != Some("git") {
        return None;
    }
    let wanted: Vec<&str> = pattern.split_ascii_whitespace().collect();
    let before = wanted.iter().take_while(|word| word.contains('=')).count();
    let is_spelled = |end: usize| {
        let wanted = wanted.get(before..).unwrap_or_default();
        let words = words.iter().take(end).map(|word| word.known_text());
        wanted.len() >= end && words.eq(wanted.iter().take(end).map(|word| Some(*word)))
    };
    let mut at = 1;
    while let Some(word) = words.get(at).filter(|word| word.is_option()) {
        let option = word.literal.split('=').next().unwrap_or_default();
        let has_value = is_value_option("git", word);
        let overriding =
            ["-c", "--config-env", "--exec-path"].into_iter().find(|one| *one == option);
        let end = at + 1 + usize::from(has_value);
        if let Some(overriding) = overriding.filter(|_| !is_spelled(end)) {
            return Some(overriding);
        }
        at = end;
    }
    None
}

fn is_value_option(program: &str, word: &ShellWord) -> bool {
    value_options(program).is_some_and(|values| values.contains(&&*word.literal))
}

/// The context of a text, which follows from the texts around it.
#[derive(Clone, Debug, Default)]
struct ShellContext {
    depth: usize,
    /// True if some input comes from elsewhere in the text.
    has_piped_input: bool,
    /// Programs whose words a variable may redefine.
    renamed_programs: Vec<&'static str>,
}

impl ShellContext {
    /// Returns the context of a line's commands. A variable that one of them sets applies to all.
    fn of_line(&self, line: &ParsedCommandLine) -> Self {
        let mut inner = self.clone();
        inner.has_piped_input |= line.has_piped_input;
        for command in &line.commands {
            let first = command.argv.iter().find_map(|word| word.known_text());
            let sets = first.is_some_and(|first| VARIABLE_SETTERS.contains(&first));
            for word in command.argv.iter().filter(|word| sets || word.literal.contains('=')) {
                let found =
                    RENAMING_VARIABLES.iter().filter(|(name, _)| word.literal.starts_with(name));
                inner.renamed_programs.extend(found.map(|(_, program)| program));
            }
        }
        inner.renamed_programs.sort_unstable();
        inner.renamed_programs.dedup();
        inner
    }
}

/// A pattern, split into words.
struct WordPattern<'a> {
    program: &'a str,
    /// The words that are not options, in order.
    operands: Vec<&'a str>,
    /// The options, which may be anywhere.
    options: Vec<&'a str>,
    /// True if more words may follow.
    allows_more: bool,
}

/// Returns whether a word of a pattern matches any number of words.
fn is_star_word(word: &str) -> bool {
    word.bytes().all(|byte| byte == b'*')
}

impl<'a> WordPattern<'a> {
    /// Parses a pattern. Returns `None` if it begins with a variable, because it then matches a
    /// text as written.
    fn of(pattern: &'a str) -> Option<Self> {
        let mut words = pattern.split_ascii_whitespace();
        let program = words.next().filter(|word| !word.contains('='))?;
        let (options, words): (Vec<&str>, Vec<&str>) =
            words.partition(|word| word.len() > 1 && word.starts_with('-'));
        Some(Self { program, operands: words, options, allows_more: pattern.ends_with('*') })
    }

    fn matches_line(&self, line: &ParsedCommandLine, outer: &ShellContext) -> bool {
        let inner = outer.of_line(line);
        line.is_unreadable
            || line.commands.iter().any(|command| self.matches_command(command, &inner))
    }

    /// Returns whether a command runs a match of the pattern, directly or as a wrapper.
    fn matches_command(&self, command: &SimpleCommand, context: &ShellContext) -> bool {
        let mut search = ProgramSearch {
            pattern: self,
            argv: command.argv.clone(),
            has_piped_input: command.has_piped_input,
            context,
            seen: vec![false; command.argv.len()],
            pending: command.alternate_starts.iter().copied().chain([0]).collect(),
            loose_from: usize::MAX,
        };
        while let Some(at) = search.pending.pop() {
            if at < search.seen.len()
                && !std::mem::replace(&mut search.seen[at], true)
                && search.visit(at)
            {
                return true;
            }
        }
        false
    }

    fn matches_program(&self, word: &ShellWord) -> bool {
        match word.program_name() {
            Some(name) => {
                let written = word.known_text().unwrap_or(name);
                glob::matches(self.program, name, StarReach::Anything)
                    || glob::matches(self.program, written, StarReach::Anything)
            }
            None => {
                may_match(self.program, word)
                    || may_match(self.program, &word.program_name_prefix())
            }
        }
    }

    /// Returns whether the pattern may match these words, of which the first is the program.
    fn matches_argv(&self, words: &[ShellWord]) -> bool {
        let Some((program, arguments)) = words.split_first() else { return false };
        // An expansion may contain arguments too.
        if program.is_unknown() || program.may_have_arguments() && self.matches_program(program) {
            return !program.literal.contains('=');
        }
        self.matches_program(program)
            && self.matches_options(program, arguments)
            && self.matches_operands(program, arguments)
    }

    /// Returns whether each option of the pattern may be among the words, except for values of
    /// other options.
    fn matches_options(&self, program: &ShellWord, arguments: &[ShellWord]) -> bool {
        let name = program.program_name().unwrap_or_default();
        let is_value = |at: usize| {
            let before = &arguments[..at];
            before.last().is_some_and(|option| is_value_option(name, option))
                && before.iter().all(|word| word.is_option() || word.has_expansion)
        };
        self.options.iter().all(|option| {
            let mut words = arguments.iter().enumerate().filter(|(at, _)| !is_value(*at));
            words.any(|(_, word)| may_match(option, word))
        })
    }

    /// Returns whether the pattern's words may be the next ones that are not options. All reachable
    /// positions in the pattern are followed at once.
    fn matches_operands(&self, program: &ShellWord, arguments: &[ShellWord]) -> bool {
        let name = program.program_name().unwrap_or_default();
        let listed = value_options(name).is_some();
        let end = self.operands.len();
        let mut places = PatternPositions::at_start(self);
        let mut ended_options = false;
        for word in arguments {
            if self.allows_more && places.has_reached(end) {
                return true;
            }
            if word.known_text() == Some("--") {
                ended_options = true;
                continue;
            }
            let is_option = !ended_options && word.is_option();
            places = if is_option && word.may_be_several() {
                places.advance(self, &ShellWord::unknown())
            } else if is_option {
                // The value of an option is known for listed programs, as long as the option is
                // their own.
                let first = places.is_at_start();
                match (listed && first, is_value_option(name, word)) {
                    (true, true) => places.expect_value(),
                    (true, false) if has_all_value_options(name) => places,
                    (true, false) if word.literal.contains('=') => places,
                    (true, false) => places.maybe_expect_value(),
                    (false, _) if word.literal.contains('=') => places,
                    (false, _) => places.maybe_expect_value(),
                }
            } else if name == "cargo" && places.is_at_start() && word.literal.starts_with('+') {
                places
            } else {
                places.advance(self, word)
            };
            if places.is_empty() {
                return false;
            }
        }
        places.has_reached(end)
    }
}

/// Returns whether a word that is not fully known may match a pattern's word.
fn may_match(pattern: &str, word: &ShellWord) -> bool {
    if !word.has_expansion {
        return glob::matches(pattern, &word.literal, StarReach::Anything);
    }
    let fixed = pattern.split('*').next().unwrap_or_default();
    fixed.starts_with(&*word.literal) || pattern.contains('*') && word.literal.starts_with(fixed)
}

/// The reachable positions in a pattern, each with and without an option value that comes next.
#[derive(Clone, Debug)]
struct PatternPositions {
    reached: Vec<bool>,
    before_value: Vec<bool>,
}

impl PatternPositions {
    fn at_start(pattern: &WordPattern<'_>) -> Self {
        let count = pattern.operands.len() + 1;
        let mut places = Self { reached: vec![false; count], before_value: vec![false; count] };
        places.reached[0] = true;
        places.skip_star_words(pattern);
        places
    }

    fn is_at_start(&self) -> bool {
        self.reached[0] || self.before_value[0]
    }

    fn is_empty(&self) -> bool {
        !self.reached.iter().chain(&self.before_value).any(|reached| *reached)
    }

    /// Returns whether the position is reached. An option at the end may lack its value.
    fn has_reached(&self, place: usize) -> bool {
        self.reached[place] || self.before_value[place]
    }

    /// Moves over an option whose value comes next.
    fn expect_value(self) -> Self {
        let all = self.reached.iter().zip(&self.before_value).map(|(free, value)| *free || *value);
        Self { before_value: all.collect(), reached: vec![false; self.reached.len()] }
    }

    /// Moves over an option whose value may come next.
    fn maybe_expect_value(self) -> Self {
        let all = self.reached.iter().zip(&self.before_value).map(|(free, value)| *free || *value);
        let all: Vec<bool> = all.collect();
        Self { before_value: all.clone(), reached: all }
    }

    /// Moves over a word that is not an option.
    fn advance(self, pattern: &WordPattern<'_>, word: &ShellWord) -> Self {
        let count = self.reached.len();
        let mut next = Self { reached: vec![false; count], before_value: vec![false; count] };
        if word.is_unknown() {
            // It may be any number of words, or none.
            let first = self.reached.iter().chain(&self.before_value).position(|reached| *reached);
            let first = first.map_or(count, |at| at % count);
            next.reached[first..].fill(true);
            return next;
        }
        for place in 0..count {
            if self.before_value[place] {
                next.reached[place] = true;
            }
            if !self.reached[place] {
                continue;
            }
            match pattern.operands.get(place) {
                Some(wanted) if is_star_word(wanted) => next.reached[place] = true,
                Some(wanted) => next.reached[place + 1] |= may_match(wanted, word),
                None => next.reached[place] |= pattern.allows_more,
            }
        }
        next.skip_star_words(pattern);
        next
    }

    /// Follows stars of their own, which may match no word at all.
    fn skip_star_words(&mut self, pattern: &WordPattern<'_>) {
        for (place, word) in pattern.operands.iter().enumerate() {
            if is_star_word(word) {
                self.reached[place + 1] |= self.reached[place];
            }
        }
    }
}

/// A search through a command for each program that it may run.
struct ProgramSearch<'a, 'b> {
    pattern: &'a WordPattern<'b>,
    argv: Vec<ShellWord>,
    has_piped_input: bool,
    context: &'a ShellContext,
    /// The positions that were visited, so that each is visited once.
    seen: Vec<bool>,
    pending: Vec<usize>,
    /// The position from which on every word was taken for a program.
    loose_from: usize,
}

impl ProgramSearch<'_, '_> {
    /// Checks the program at this position, and notes further positions.
    fn visit(&mut self, at: usize) -> bool {
        let word = &self.argv[at];
        // Keywords and assignments are checked as programs too, as far as a pattern matches them.
        if self.pattern.matches_argv(&self.argv[at..]) {
            return true;
        }
        if word.known_text().is_some_and(|word| KEYWORDS.contains(&word))
            || word.literal.contains('=')
        {
            self.pending.push(at + 1);
            return false;
        }
        if word.known_text().is_some_and(|word| NAMING_KEYWORDS.contains(&word)) {
            self.pending.extend([at + 1, at + 2]);
            return false;
        }
        // An unknown program may be any, except for words that are unlikely to be one.
        let is_sure = at < self.loose_from;
        let name = match word.program_name().map(str::to_owned) {
            Some(_) if is_sure && word.may_be_several() => return true,
            Some(name) => name,
            None => return is_sure,
        };
        match name.as_str() {
            "eval" => self.runs_joined(at + 1),
            "alias" => self.runs_alias(at),
            "trap" => self.runs_trap(at),
            "." | "source" => self.context.has_piped_input,
            "git" => self.runs_by_setting(at),
            "cargo" => self.is_renamed(at, &["--config"]),
            "env" => self.runs_split(at) || self.visit_wrapped(at, find_wrapper("env")),
            name if SHELLS.contains(&name) => self.runs_script(at),
            name if is_loose_runner(name) => self.runs_loosely(at, name),
            name => self.visit_wrapped(at, find_wrapper(name)),
        }
    }

    /// Continues after the options and operands of a wrapper.
    fn visit_wrapped(&mut self, at: usize, wrapper: Option<&WrapperProgram>) -> bool {
        let Some(wrapper) = wrapper else { return false };
        let kinds = wrapper.operands + 1;
        let mut seen = vec![false; (self.argv.len() + 3) * kinds];
        let mut pending = vec![(at + 1, wrapper.operands)];
        while let Some((at, operands)) = pending.pop() {
            if std::mem::replace(&mut seen[at * kinds + operands], true) {
                continue;
            }
            match self.argv.get(at) {
                Some(word) if word.known_text() == Some("--") => {
                    self.pending.extend([at + 1, at + 1 + operands]);
                }
                Some(word) if wrapper.value_options.contains(&&*word.literal) => {
                    pending.push((at + 2, operands));
                }
                Some(word) if word.is_option() || word.literal == "-" => {
                    pending.extend(
                        wrapper.may_have_value(&word.literal).then_some((at + 2, operands)),
                    );
                    pending.push((at + 1, operands));
                }
                Some(word) if operands > 0 && !word.is_unknown() => {
                    pending.push((at + 1, operands - 1));
                }
                // A word that may be none, or several.
                _ => self.pending.extend([at, at + operands]),
            }
        }
        false
    }

    /// Treats every word as the beginning of a program, and every text as a command line.
    fn runs_loosely(&mut self, at: usize, name: &str) -> bool {
        if matches!(name, "xargs" | "parallel") && self.argv.last() != Some(&ShellWord::unknown()) {
            // Its input provides more words.
            self.argv.push(ShellWord::unknown());
            self.seen.push(true);
        }
        // Words after another such program were checked with that one.
        let end = self.loose_from.min(self.argv.len());
        self.loose_from = end.min(at + 1);
        for word in self.argv.get_mut(at + 1..end).unwrap_or_default() {
            *word = std::mem::take(word).fill_placeholder();
        }
        let words = self.argv.get(at + 1..end).unwrap_or_default();
        let mut texts = words.iter().filter(|word| word.literal.contains(char::is_whitespace));
        if texts.any(|word| self.runs_text(&word.literal)) {
            return true;
        }
        self.pending.extend((at + 1..end).filter(|at| !self.argv[*at].is_option()));
        false
    }

    /// Checks `sh -c TEXT`. A shell that reads its input may run anything in it.
    fn runs_script(&mut self, at: usize) -> bool {
        let mut is_command = false;
        let mut is_input = false;
        let mut here = at + 1;
        while let Some(word) = self.argv.get(here) {
            if word.is_unknown() {
                return true;
            }
            let is_option =
                word.is_option() || word.literal.starts_with('+') && word.literal.len() > 1;
            if !is_option {
                break;
            }
            let letters =
                word.literal.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
            is_command |= letters.is_some_and(|letters| letters.contains('c'));
            is_input |= letters.is_some_and(|letters| letters.contains('s'));
            let has_value = letters.is_some_and(|letters| letters.ends_with(['o', 'O']))
                || matches!(&*word.literal, "--rcfile" | "--init-file");
            here += 1 + usize::from(has_value);
        }
        match self.argv.get(here) {
            Some(script) if is_command => match script.known_text().map(str::to_owned) {
                Some(script) => self.runs_text(&script),
                None => true,
            },
            // Another name of its input, or a script that reads it.
            Some(script) => {
                let is_name = script.literal == "-" || script.literal.starts_with("/dev/");
                let is_input = is_input || is_name || script.literal.starts_with("/proc/");
                self.has_piped_input || is_input && self.context.has_piped_input
            }
            None => self.context.has_piped_input,
        }
    }

    fn runs_text(&self, text: &str) -> bool {
        let inner = self.nested_context();
        self.pattern.matches_line(&ParsedCommandLine::parse_nested(text, inner.depth), &inner)
    }

    fn nested_context(&self) -> ShellContext {
        let mut inner = self.context.clone();
        inner.depth += 1;
        inner
    }

    /// Checks `eval WORDS`.
    fn runs_joined(&self, from: usize) -> bool {
        let words = self.argv[from..].iter().map(ShellWord::known_text);
        let words: Option<Vec<&str>> = words.skip_while(|word| *word == Some("--")).collect();
        words.is_none_or(|words| self.runs_text(&words.join(" ")))
    }

    /// Checks `trap TEXT SIGNAL`.
    fn runs_trap(&self, at: usize) -> bool {
        let text = self.argv[at + 1..].iter().find(|word| !word.is_option());
        text.is_some_and(|text| text.known_text().is_none_or(|text| self.runs_text(text)))
    }

    /// Checks `alias g=git`, whose arguments are not known.
    fn runs_alias(&self, at: usize) -> bool {
        let inner = self.nested_context();
        let values = self.argv[at + 1..].iter().filter_map(|word| match word.known_text() {
            Some(word) => {
                Some(ParsedCommandLine::parse_nested(word.split_once('=')?.1, inner.depth))
            }
            None => Some(ParsedCommandLine::unreadable()),
        });
        values.into_iter().any(|mut line| {
            for command in &mut line.commands {
                command.argv.push(ShellWord::unknown());
            }
            self.pattern.matches_line(&line, &inner)
        })
    }

    /// Checks `env -S TEXT`, whose option may be short, combined with others, or an abbreviated
    /// long form.
    fn runs_split(&self, at: usize) -> bool {
        let options = self.argv[at + 1..].iter().enumerate();
        let mut options = options.take_while(|(_, word)| word.known_text() != Some("--"));
        options.any(|(place, word)| {
            let (option, value) = word.literal.split_once('=').unwrap_or((&word.literal, ""));
            let glued = if option.len() > 2 && "--split-string".starts_with(option) {
                value
            } else if word.is_option() && !option.starts_with("--") {
                match word.literal.split_once('S') {
                    Some((_, glued)) => glued,
                    None => return false,
                }
            } else {
                return false;
            };
            let rest = self.argv[at + 2 + place..].iter().map(ShellWord::known_text);
            let text: Option<Vec<&str>> = std::iter::once(Some(glued)).chain(rest).collect();
            // It has escapes and variables of its own.
            word.has_expansion
                || text.is_none_or(|text| {
                    let text = text.join(" ");
                    text.contains(['\\', '$']) || self.runs_text(&format!("env {text}"))
                })
        })
    }

    /// Returns whether the program's words may mean anything, because of one of these options or a
    /// variable.
    fn is_renamed(&self, at: usize, options: &[&str]) -> bool {
        let name = self.argv[at].program_name().unwrap_or_default();
        let arguments = &self.argv[at + 1..];
        let by_option = arguments
            .iter()
            .any(|word| options.contains(&word.literal.split('=').next().unwrap_or_default()));
        (by_option || self.context.renamed_programs.contains(&name)) && self.means_anything(at)
    }

    /// Returns whether the pattern matches the program with unknown words.
    fn means_anything(&self, at: usize) -> bool {
        let unknown = [self.argv[at].clone(), ShellWord::unknown()];
        self.pattern.matches_argv(&unknown)
    }

    /// Checks `git -c alias.x=push x`, and settings that are command lines.
    fn runs_by_setting(&mut self, at: usize) -> bool {
        let end = self.end_of_options(at, "git");
        let own = &self.argv[at + 1..end];
        let renames = |word: &ShellWord| {
            let option = word.literal.split('=').next().unwrap_or_default();
            matches!(option, "--config-env" | "--exec-path")
        };
        if (own.iter().any(renames) || self.context.renamed_programs.contains(&"git"))
            && self.means_anything(at)
        {
            return true;
        }
        let settings =
            own.iter().zip(own.iter().skip(1)).filter(|(option, _)| option.literal == "-c");
        settings.into_iter().any(|(_, setting)| {
            let harmless = setting.known_text().is_some_and(is_harmless_setting);
            let value = setting.known_text().and_then(|setting| setting.split_once('='));
            let runs = |(_, value): (&str, &str)| self.runs_text(value.trim_start_matches('!'));
            !harmless && (self.means_anything(at) || value.is_some_and(runs))
        })
    }

    /// Returns the position after the options in front of a listed program's subcommand.
    fn end_of_options(&self, at: usize, program: &str) -> usize {
        let mut end = at + 1;
        while let Some(word) = self.argv.get(end).filter(|word| word.is_option()) {
            end += 1 + usize::from(is_value_option(program, word));
        }
        end.min(self.argv.len())
    }
}

#[cfg(test)]
mod tests;
