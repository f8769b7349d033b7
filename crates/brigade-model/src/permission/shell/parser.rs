//! Parses the simple commands of a text as a shell would, as far as possible without running it.

use super::known_programs::{BASH_KEYWORDS, BASH_VARIABLES, KEYWORDS};

/// The maximum nesting of commands in commands.
const DEPTH_MAX: usize = 6;
/// The maximum number of words.
const WORDS_MAX: usize = 1_000;

/// All simple commands of a text, also within `$(..)`, in the order of their ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedCommandLine {
    pub(super) commands: Vec<SimpleCommand>,
    /// True if a part of it cannot be parsed, so that it may run anything.
    pub(super) is_unreadable: bool,
    /// True if the input of a command comes from elsewhere in the text.
    pub(super) has_piped_input: bool,
    word_count: usize,
}

/// One program with its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    pub(super) argv: Vec<ShellWord>,
    /// True if its input comes from elsewhere in the text.
    pub(super) has_piped_input: bool,
    /// Further positions at which some shells see the beginning of a command.
    pub(super) alternate_starts: Vec<usize>,
}

/// A here-document whose body follows the line.
struct HereDocument {
    delimiter: String,
    /// True if leading tabs of its lines are removed.
    strips_tabs: bool,
    /// True if the shell expands nothing in it.
    is_quoted: bool,
}

/// A word, without its quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShellWord {
    /// The text before the first expansion.
    pub(super) literal: String,
    /// True if the shell expands something in it: a variable, the output of a command, file names.
    pub(super) has_expansion: bool,
    /// The text after the last expansion.
    tail: String,
    /// True if the shell may split it into several words, or none.
    is_split: bool,
    /// True if the split words are more than file names.
    is_spread: bool,
    is_quoted: bool,
}

impl ShellWord {
    /// Returns a word, or several or none, of which nothing is known.
    pub(super) fn unknown() -> Self {
        Self { has_expansion: true, is_split: true, is_spread: true, ..Self::default() }
    }

    /// Returns the text of a word without expansions.
    pub(super) fn known_text(&self) -> Option<&str> {
        (!self.has_expansion).then_some(&*self.literal)
    }

    /// Returns whether it may be any words, or none.
    pub(super) fn is_unknown(&self) -> bool {
        self.is_split && self.literal.is_empty()
    }

    pub(super) fn may_be_several(&self) -> bool {
        self.is_split
    }

    /// Returns whether the shell may expand it to a program with arguments.
    pub(super) fn may_have_arguments(&self) -> bool {
        self.is_spread
    }

    pub(super) fn is_option(&self) -> bool {
        self.literal.len() > 1 && self.literal.starts_with('-')
    }

    /// Returns the name of a program without its directory. `None` if it is not known.
    pub(super) fn program_name(&self) -> Option<&str> {
        let path = if self.has_expansion { &self.tail } else { &self.literal };
        match path.rsplit_once('/') {
            Some((_, name)) => Some(name),
            None => self.known_text(),
        }
    }

    /// Returns the known part of a program's name: the text after the last slash.
    pub(super) fn program_name_prefix(&self) -> Self {
        let name = self.literal.rsplit('/').next().unwrap_or_default().to_owned();
        Self { literal: name, ..self.clone() }
    }

    /// Returns the word as another program would fill in its `{}`.
    pub(super) fn fill_placeholder(mut self) -> Self {
        if let Some(at) = self.literal.find("{}") {
            self.literal.truncate(at);
            self.add_expansion(false);
        }
        self
    }

    fn push(&mut self, letter: char) {
        self.tail.push(letter);
        if !self.has_expansion {
            self.literal.push(letter);
        }
    }

    fn add_expansion(&mut self, is_split: bool) {
        self.has_expansion = true;
        self.is_split |= is_split;
        self.is_spread |= is_split;
        self.tail.clear();
    }

    /// Notes an expansion to file names.
    fn add_glob(&mut self) {
        self.has_expansion = true;
        self.is_split = true;
        self.tail.clear();
    }

    fn is_present(&self) -> bool {
        self.has_expansion || self.is_quoted || !self.literal.is_empty()
    }
}

impl SimpleCommand {
    /// Returns whether shells differ in its meaning.
    fn is_bash_only(&self) -> bool {
        let is_before = |word: &&ShellWord| KEYWORDS.contains(&&*word.literal) && !word.is_quoted;
        let first = self.argv.iter().find(|word| !is_before(word));
        let begins = |word: &ShellWord| BASH_KEYWORDS.contains(&&*word.literal) && !word.is_quoted;
        let runs =
            |word: &ShellWord| BASH_VARIABLES.iter().any(|name| word.literal.starts_with(name));
        first.is_some_and(begins) || self.argv.iter().any(runs)
    }
}

impl ParsedCommandLine {
    pub(super) fn parse(text: &str) -> Self {
        Self::parse_nested(text, 0)
    }

    pub(super) fn unreadable() -> Self {
        Self { is_unreadable: true, ..Self::default() }
    }

    /// Parses a text that is nested in another.
    pub(super) fn parse_nested(text: &str, depth: usize) -> Self {
        Self::parse_with(text, depth, |reader| reader.read())
    }

    /// Parses the body of a here-document, which is seldom shell text. A shell that reads one is
    /// recognized elsewhere, so syntax that only looks like a shell's is ignored.
    fn read_body(text: &str, depth: usize) -> Self {
        Self::parse_with(text, depth, |reader| {
            reader.is_here_document = true;
            reader.read();
        })
    }

    /// Parses a text that is no command, but contains command substitutions.
    fn parse_document(text: &str, depth: usize) -> Self {
        Self::parse_with(text, depth, |reader| reader.read_quoted_until(None))
    }

    fn parse_with(text: &str, depth: usize, read: impl FnOnce(&mut ShellParser<'_>)) -> Self {
        if depth > DEPTH_MAX {
            return Self::unreadable();
        }
        let letters: Vec<char> = text.chars().collect();
        let mut reader = ShellParser {
            letters: &letters,
            at: 0,
            depth,
            line: Self::default(),
            command: None,
            word: None,
            documents: Vec::new(),
            is_here_document: false,
        };
        read(&mut reader);
        reader.line
    }

    fn add(&mut self, other: Self) {
        self.is_unreadable |= other.is_unreadable;
        self.has_piped_input |= other.has_piped_input;
        self.word_count += other.word_count;
        self.commands.extend(other.commands);
    }
}

struct ShellParser<'a> {
    letters: &'a [char],
    at: usize,
    depth: usize,
    line: ParsedCommandLine,
    command: Option<SimpleCommand>,
    word: Option<ShellWord>,
    /// The here-documents whose bodies begin with the next line.
    documents: Vec<HereDocument>,
    /// True if the text is the body of a here-document.
    is_here_document: bool,
}

impl ShellParser<'_> {
    fn read(&mut self) {
        // The word after a redirection is a file.
        let mut is_file = false;
        while let Some(letter) = self.next() {
            match letter {
                ' ' | '\t' => is_file &= !self.end_word(is_file),
                '&' if self.peek() == Some('>') => {
                    self.end_word(is_file);
                    self.redirect_all();
                    is_file = true;
                }
                '\n' | '\r' | ';' | '&' | '|' | '(' | ')' => {
                    self.end_word(is_file);
                    is_file = false;
                    match (letter, self.peek()) {
                        // `|&` pipes both streams into the next command.
                        ('|', Some('&')) => self.at += 1,
                        // In an arithmetic expression, bash also runs commands from quoted text.
                        ('(', Some('(')) => self.mark_unreadable(),
                        _ => (),
                    }
                    self.end_command(letter == '|');
                    if letter == '\n' {
                        self.read_document_bodies();
                    }
                }
                '<' | '>' => is_file = self.redirect(letter, is_file),
                '#' if self.word.is_none() => {
                    while self.peek().is_some_and(|letter| letter != '\n') {
                        self.at += 1;
                    }
                }
                letter => self.read_word_part(letter),
            }
            if self.line.word_count > WORDS_MAX {
                self.line.is_unreadable = true;
                return;
            }
        }
        self.end_word(is_file);
        self.end_command(false);
        // A here-document has no body.
        self.line.is_unreadable |= !self.documents.is_empty();
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.at += 1;
        Some(letter)
    }

    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn word(&mut self) -> &mut ShellWord {
        self.word.get_or_insert_default()
    }

    fn end_word(&mut self, is_file: bool) -> bool {
        let Some(word) = self.word.take().filter(ShellWord::is_present) else { return false };
        self.line.word_count += 1;
        if !is_file {
            self.command.get_or_insert_default().argv.push(word);
        }
        true
    }

    /// Notes syntax that shells interpret differently, so that it may run anything.
    fn mark_unreadable(&mut self) {
        self.line.is_unreadable |= !self.is_here_document;
    }

    fn end_command(&mut self, feeds_next: bool) {
        let command = self.command.take().unwrap_or_default();
        if command.is_bash_only() {
            self.mark_unreadable();
        }
        if !command.argv.is_empty() {
            self.line.commands.push(command);
        }
        self.line.has_piped_input |= feeds_next;
        self.command =
            Some(SimpleCommand { has_piped_input: feeds_next, ..SimpleCommand::default() });
    }

    /// Parses `a &>f b`, which is one command in some shells and two in others.
    fn redirect_all(&mut self) {
        let command = self.command.get_or_insert_default();
        let alone = command.clone();
        command.alternate_starts.push(command.argv.len());
        if !alone.argv.is_empty() {
            self.line.commands.push(alone);
        }
        while self.peek() == Some('>') {
            self.at += 1;
        }
    }

    /// Parses a redirection. Returns whether the next word is a file.
    fn redirect(&mut self, letter: char, is_file: bool) -> bool {
        // The number of a stream is no word.
        let is_number = |word: &ShellWord| {
            !word.has_expansion
                && !word.is_quoted
                && word.literal.bytes().all(|byte| byte.is_ascii_digit())
        };
        if self.word.as_ref().is_some_and(is_number) {
            self.word = None;
        }
        self.end_word(is_file);
        if letter == '<' {
            self.command.get_or_insert_default().has_piped_input = true;
            self.line.has_piped_input = true;
        }
        let start = self.at;
        while self.peek().is_some_and(|letter| "<>&|".contains(letter)) {
            self.at += 1;
        }
        let operator: String = self.letters[start..self.at].iter().collect();
        match (letter, &*operator) {
            ('<', "<") => {
                self.read_document_delimiter();
                false
            }
            // This closes a stream.
            (_, "&") if self.peek() == Some('-') => {
                self.at += 1;
                false
            }
            // `<(..)` and `>(..)`: a file that a command writes or reads, and that may be a
            // program.
            _ if self.peek() == Some('(') => {
                self.mark_unreadable();
                false
            }
            _ => true,
        }
    }

    /// Parses the delimiter of a here-document.
    fn read_document_delimiter(&mut self) {
        let is_indented = self.peek() == Some('-');
        self.at += usize::from(is_indented);
        while self.peek().is_some_and(|letter| matches!(letter, ' ' | '\t')) {
            self.at += 1;
        }
        let ends = |letter: char| letter.is_ascii_whitespace() || ";&|<>()".contains(letter);
        while let Some(letter) = self.peek().filter(|letter| !ends(*letter)) {
            self.at += 1;
            self.read_word_part(letter);
        }
        match self.word.take() {
            Some(word) if !word.has_expansion => self.documents.push(HereDocument {
                delimiter: word.literal,
                strips_tabs: is_indented,
                is_quoted: word.is_quoted,
            }),
            _ => self.line.is_unreadable = true,
        }
    }

    /// Skips the bodies of a line's here-documents. Each is parsed by itself, as commands and as
    /// text, so that no quote in it hides the commands after it.
    fn read_document_bodies(&mut self) {
        for document in std::mem::take(&mut self.documents) {
            let mut body = String::new();
            let is_ended = loop {
                if self.at >= self.letters.len() {
                    break false;
                }
                let rest = &self.letters[self.at..];
                let line: String = rest.iter().take_while(|letter| **letter != '\n').collect();
                self.at = (self.at + line.chars().count() + 1).min(self.letters.len());
                let line = match document.strips_tabs {
                    true => line.trim_start_matches('\t'),
                    false => &*line,
                };
                if line == document.delimiter {
                    break true;
                }
                body.push_str(line);
                body.push('\n');
            };
            // A line continuation may hide the delimiter.
            let goes_on = !document.is_quoted && body.contains("\\\n");
            self.line.is_unreadable |= !is_ended || goes_on;
            if !document.is_quoted {
                self.line.add(ParsedCommandLine::parse_document(&body, self.depth + 1));
            }
            self.line.add(ParsedCommandLine::read_body(&body, self.depth + 1));
        }
    }

    /// Parses a letter of a word, or a larger part that begins with it.
    fn read_word_part(&mut self, letter: char) {
        match letter {
            '\'' => self.read_single_quoted(),
            '"' => self.read_double_quoted(),
            '\\' => match self.next() {
                // A line continuation.
                Some('\n') => (),
                Some(letter) => {
                    self.word().is_quoted = true;
                    self.word().push(letter);
                }
                None => self.line.is_unreadable = true,
            },
            '$' => self.read_expansion(true),
            '`' => self.read_backticks(true),
            '[' if self.word.is_none() && self.is_double_bracket() => {
                self.at += 1;
                self.word().literal.push_str("[[");
            }
            '*' | '?' | '[' => {
                // `[` alone is a command name, as in `[ -e x ]`.
                let is_alone = self.word.is_none()
                    && letter == '['
                    && self.peek().is_none_or(|letter| letter.is_ascii_whitespace());
                match is_alone {
                    true => self.word().push(letter),
                    false => self.word().add_glob(),
                }
            }
            '{' if self
                .peek()
                .is_some_and(|letter| letter != '}' && !letter.is_ascii_whitespace()) =>
            {
                self.word().add_expansion(true);
            }
            letter => self.word().push(letter),
        }
    }

    /// Returns whether the last letter is the first of a word `[[`.
    fn is_double_bracket(&self) -> bool {
        let after = self.letters.get(self.at + 1);
        self.peek() == Some('[') && after.is_none_or(|letter| letter.is_ascii_whitespace())
    }

    fn read_single_quoted(&mut self) {
        self.word().is_quoted = true;
        loop {
            match self.next() {
                Some('\'') => return,
                Some(letter) => self.word().push(letter),
                None => {
                    self.line.is_unreadable = true;
                    return;
                }
            }
        }
    }

    fn read_double_quoted(&mut self) {
        self.word().is_quoted = true;
        self.read_quoted_until(Some('"'));
    }

    /// Parses quoted text up to the mark, or up to the end without one.
    fn read_quoted_until(&mut self, mark: Option<char>) {
        loop {
            match self.next() {
                letter if letter == mark => return,
                Some('\\') => match self.next() {
                    Some('\n') => (),
                    Some(letter) if "\"\\$`".contains(letter) => self.word().push(letter),
                    Some(letter) => {
                        self.word().push('\\');
                        self.word().push(letter);
                    }
                    None => self.line.is_unreadable = true,
                },
                Some('$') => self.read_expansion(false),
                Some('`') => self.read_backticks(false),
                Some(letter) => self.word().push(letter),
                None => {
                    self.line.is_unreadable = true;
                    return;
                }
            }
        }
    }

    /// Parses the text after a `$`.
    fn read_expansion(&mut self, is_split: bool) {
        match self.peek() {
            Some('(') => self.read_nested('(', ')', is_split),
            Some('{') => self.read_nested('{', '}', is_split),
            Some(letter) if letter.is_ascii_alphabetic() || letter == '_' => {
                let in_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                while self.peek().is_some_and(in_name) {
                    self.at += 1;
                }
                self.word().add_expansion(is_split);
            }
            // In some shells this is a quote with escapes, which may end elsewhere than in others.
            Some('\'') if is_split => {
                self.word().add_expansion(true);
                self.at += 1;
                self.read_single_quoted();
                let before = self.at.checked_sub(2).and_then(|at| self.letters.get(at));
                self.line.is_unreadable |= before == Some(&'\\');
            }
            Some('\'' | '"') => self.word().add_expansion(is_split),
            Some(letter) if letter.is_ascii_digit() || "?$!@*#-".contains(letter) => {
                self.at += 1;
                self.word().add_expansion(is_split || letter == '@');
            }
            _ => self.word().push('$'),
        }
    }

    /// Parses the text between two brackets as commands. Other text does no harm as a command.
    fn read_nested(&mut self, open: char, close: char, is_split: bool) {
        self.at += 1;
        let start = self.at;
        self.word().add_expansion(is_split);
        let mut depth = 1;
        let mut quote = None;
        while let Some(letter) = self.next() {
            match (letter, quote) {
                ('\\', None | Some('"')) => self.at += 1,
                (letter, Some(mark)) if letter == mark => quote = None,
                ('\'' | '"', None) => quote = Some(letter),
                (letter, None | Some('"')) if letter == open => depth += 1,
                (letter, None | Some('"')) if letter == close => depth -= 1,
                _ => (),
            }
            if depth == 0 {
                let inner: String = self.letters[start..self.at - 1].iter().collect();
                if open == '{' {
                    // An expansion of a whole list is several words also within quotes.
                    self.word().add_expansion(inner.contains('@'));
                    // A quote within quotes is a quote in some forms, and a letter in others.
                    self.line.is_unreadable |= !is_split && inner.contains('\'');
                    self.line.add(ParsedCommandLine::parse_document(&inner, self.depth + 1));
                    return;
                }
                if !is_arithmetic(&inner) {
                    self.line.add(ParsedCommandLine::parse_nested(&inner, self.depth + 1));
                    return;
                }
                if inner.contains('\'') {
                    self.mark_unreadable();
                }
                let sum = inner[1..inner.len() - 1].replace(['*', '?'], "+");
                self.line.add(ParsedCommandLine::read_body(&sum, self.depth + 1));
                return;
            }
        }
        self.line.is_unreadable = true;
    }

    fn read_backticks(&mut self, is_split: bool) {
        self.word().add_expansion(is_split);
        let mut inner = String::new();
        while let Some(letter) = self.next() {
            match letter {
                '`' => {
                    self.line.add(ParsedCommandLine::parse_nested(&inner, self.depth + 1));
                    return;
                }
                '\\' => inner.extend(self.next()),
                letter => inner.push(letter),
            }
        }
        self.line.is_unreadable = true;
    }
}

/// Returns whether a whole text is in one pair of parentheses, as in `$((1 * 2))`.
fn is_arithmetic(text: &str) -> bool {
    let mut depth = 0_usize;
    let mut ends = text.char_indices().filter_map(|(at, letter)| {
        depth = (depth + usize::from(letter == '(')).saturating_sub(usize::from(letter == ')'));
        (depth == 0).then_some(at)
    });
    text.starts_with('(') && ends.next() == Some(text.len() - 1)
}

#[cfg(test)]
mod tests;
