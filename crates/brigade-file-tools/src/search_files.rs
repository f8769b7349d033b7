//! The tool that finds text in files.

use std::io;
use std::time::Duration;

use brigade_model::truncate::head_bytes;
use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::FileTool;
use crate::call_deadline::{CallDeadline, DeadlineReader};
use crate::confined_dir::{ConfinedDir, DirEntryKind, file_type};
use crate::ignore_filter::ShownFiles;
use crate::list_files::directory;
use crate::rel_path::RelPath;
use crate::render::{BODY_MAX, errno_error, escape_control_chars, missing_error, pluralize};
use crate::walk::{FileWalk, PathPattern, WalkControl, WalkEntry, WalkSummary};
use crate::working_directory::{LocatedPath, WorkingDirectory};
use brigade_agent::tool::{ExecutionHints, ToolEffect, ToolError};

const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1_000;
const CONTEXT_MAX: usize = 10;
const PATTERN_MAX: usize = 10_000;
/// The maximum length of a rendered line.
const LINE_MAX: usize = 400;
/// The length of the text before a match that is far into its line.
const MATCH_LEAD: usize = 100;
/// The maximum size of a searched line.
const HEAP_MAX: usize = 8 * 1024 * 1024;
const REGEX_MAX: usize = 16 * 1024 * 1024;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchFiles {
    /// A regular expression (Rust syntax), matched against each line.
    pattern: String,
    /// A directory or file, relative to your directory. Default: your directory.
    #[serde(default = "directory")]
    path: String,
    /// Only files that match, such as *.rs (by name) or src/**/*.rs (by path).
    #[serde(default)]
    glob: Option<String>,
    /// The pattern is plain text, not a regular expression.
    #[serde(default)]
    literal: bool,
    /// Ignore case.
    #[serde(default)]
    ignore_case: bool,
    /// The number of lines around each match, at most 10. Default: 0.
    #[serde(default)]
    context: usize,
    /// Show only the paths of files with a match.
    #[serde(default)]
    files_only: bool,
    /// Also search files and directories whose names begin with a dot.
    #[serde(default)]
    hidden: bool,
    /// Also search files that git ignores.
    #[serde(default)]
    ignored: bool,
    /// The maximum number of matching lines, or files. Default 100, at most 1000.
    #[serde(default)]
    limit: Option<usize>,
}

impl FileTool for SearchFiles {
    const NAME: &'static str = "search_files";
    const DESCRIPTION: &'static str = "Find lines that match a regular expression in the files of your \
        directory, or in one file. Each match has its path and line number. Binary and hidden files and \
        files that git ignores are omitted; ask for the last two with hidden and ignored. Use it to find \
        a place, then read_file to read around it. To find files by name use list_files with glob.";
    const HINTS: ExecutionHints = ExecutionHints::of(ToolEffect::Pure);
    const TIMEOUT: Duration = Duration::from_secs(30);

    fn path(&self) -> &str {
        &self.path
    }

    fn run(
        self,
        working_dir: &WorkingDirectory,
        deadline: &CallDeadline,
    ) -> Result<String, ToolError> {
        let limit = self.limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) || self.context > CONTEXT_MAX {
            return Err(ToolError::new(format!(
                "the argument `limit` is 1 to {LIMIT_MAX}, `context` 0 to {CONTEXT_MAX}"
            )));
        }
        let matcher = self.matcher()?;
        let glob = self.glob.as_deref().map(PathPattern::new).transpose()?;
        let LocatedPath { root, name: start } = &working_dir.locate(Self::NAME, &self.path)?;
        match root.inspect(start).map_err(|errno| errno_error(root, start, errno))? {
            DirEntryKind::Missing => return Err(missing_error(root, start)),
            DirEntryKind::Link(_) | DirEntryKind::Other(_) => (),
        }
        let shown = ShownFiles { hidden: self.hidden, ignored: self.ignored };
        let walk = FileWalk { working_dir, root, start, depth: None, shown, deadline };
        let mut search = FileSearch {
            searcher: self.searcher(),
            matcher,
            report: SearchReport {
                files_only: self.files_only,
                remaining: limit,
                ..SearchReport::default()
            },
            root,
            deadline,
        };
        let walked = walk.for_each(|WalkEntry { name, kind }| {
            let is_file =
                matches!(&kind, DirEntryKind::Other(stat) if file_type(stat) == FileType::RegularFile);
            if !is_file || !glob.as_ref().is_none_or(|glob| glob.matches(&name, start)) {
                return WalkControl::Continue;
            }
            if !working_dir.may_show(name.as_str()) || working_dir.denies(Self::NAME, name.as_str()) {
                search.report.denied += 1;
                return WalkControl::Continue;
            }
            search.search_file(&name)
        });
        Ok(search.report.render(walked))
    }
}

impl SearchFiles {
    fn matcher(&self) -> Result<RegexMatcher, ToolError> {
        let invalid =
            |problem: &str| Err(ToolError::new(format!("the argument `pattern`: {problem}")));
        if self.pattern.is_empty() {
            return invalid("it is empty and would match every line");
        }
        if self.pattern.len() > PATTERN_MAX {
            return invalid("it is too long");
        }
        let built = RegexMatcherBuilder::new()
            .fixed_strings(self.literal)
            .case_insensitive(self.ignore_case)
            .line_terminator(Some(b'\n'))
            .size_limit(REGEX_MAX)
            .dfa_size_limit(REGEX_MAX)
            .build(&self.pattern);
        match built {
            Ok(matcher) => Ok(matcher),
            Err(error) => invalid(&format!("{error}; use literal: true to search for plain text")),
        }
    }

    fn searcher(&self) -> Searcher {
        let context = if self.files_only { 0 } else { self.context };
        SearcherBuilder::new()
            .line_number(true)
            .before_context(context)
            .after_context(context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(HEAP_MAX))
            .build()
    }
}

/// A running search.
struct FileSearch<'a> {
    searcher: Searcher,
    matcher: RegexMatcher,
    report: SearchReport,
    root: &'a ConfinedDir,
    deadline: &'a CallDeadline,
}

impl FileSearch<'_> {
    fn search_file(&mut self, name: &RelPath) -> WalkControl {
        let Ok((file, _)) = self.root.open_file(name) else {
            self.report.unreadable += 1;
            return WalkControl::Continue;
        };
        let reader = DeadlineReader { reader: file, deadline: self.deadline };
        let before = self.report.lines.len();
        let path = escape_control_chars(name.as_str());
        let lines = MatchSink {
            report: &mut self.report,
            matcher: &self.matcher,
            path: &path,
            has_gap: false,
        };
        let searched = self.searcher.search_reader(&self.matcher, reader, lines);
        self.report.files += u64::from(self.report.lines.len() > before);
        // At the timeout the walk ends at its next step.
        if searched.is_err() && self.deadline.aborted().is_none() {
            self.report.unreadable += 1;
        }
        if self.report.is_full { WalkControl::Stop } else { WalkControl::Continue }
    }
}

/// The results so far.
#[derive(Default)]
struct SearchReport {
    lines: Vec<String>,
    bytes: usize,
    files_only: bool,
    /// The number of further matches allowed.
    remaining: usize,
    is_full: bool,
    matches: u64,
    files: u64,
    denied: u64,
    unreadable: u64,
}

impl SearchReport {
    /// Adds a line. Returns false if it does not fit.
    fn add(&mut self, line: String) -> bool {
        if self.bytes + line.len() >= BODY_MAX {
            self.is_full = true;
            return false;
        }
        self.bytes += line.len() + 1;
        self.lines.push(line);
        true
    }

    fn render(mut self, walked: WalkSummary) -> String {
        let mut notes = vec![match (self.matches, self.files_only) {
            (0, _) => "nothing matches".to_owned(),
            (_, true) => pluralize(self.files, "matching file"),
            (matches, false) => {
                format!(
                    "{} in {}",
                    pluralize(matches, "matching line"),
                    pluralize(self.files, "file")
                )
            }
        }];
        if walked.is_truncated {
            notes.push(
                "truncated: there may be more; narrow the search with path, glob or pattern"
                    .to_owned(),
            );
        }
        if self.denied > 0 {
            let files = pluralize(self.denied, "file");
            notes.push(format!("{files} omitted that you are not permitted to read"));
        }
        if self.unreadable > 0 {
            let files = pluralize(self.unreadable, "file");
            notes.push(format!("{files} could not be searched (unreadable, or with huge lines)"));
        }
        notes.extend(walked.notes());
        self.lines.push(format!("[{}]", notes.join("; ")));
        self.lines.join("\n")
    }
}

/// A sink for the lines of one file.
struct MatchSink<'a> {
    report: &'a mut SearchReport,
    matcher: &'a RegexMatcher,
    path: &'a str,
    /// True if lines are omitted before the next one.
    has_gap: bool,
}

impl MatchSink<'_> {
    fn add_line(&mut self, bytes: &[u8], number: Option<u64>, separator: char) -> bool {
        if std::mem::take(&mut self.has_gap) && !self.report.add("--".to_owned()) {
            return false;
        }
        let at = if separator == ':' { self.matcher.find(bytes).ok().flatten() } else { None };
        let text = excerpt(bytes, at.map_or(0, |found| found.start()));
        let number = number.unwrap_or_default();
        self.report.add(format!("{}{separator}{number}{separator} {text}", self.path))
    }
}

impl Sink for MatchSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.report.remaining == 0 {
            self.report.is_full = true;
            return Ok(false);
        }
        if self.report.files_only {
            let path = self.path.to_owned();
            if self.report.add(path) {
                self.report.remaining -= 1;
                self.report.matches += 1;
            }
            return Ok(false);
        }
        let shown = self.add_line(found.bytes(), found.line_number(), ':');
        if shown {
            self.report.remaining -= 1;
            self.report.matches += 1;
        }
        Ok(shown)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        Ok(self.add_line(context.bytes(), context.line_number(), '-'))
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        self.has_gap = true;
        Ok(true)
    }
}

/// Returns the part of a line around the match.
fn excerpt(bytes: &[u8], at: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end_matches(['\n', '\r']);
    if text.len() <= LINE_MAX {
        return text.to_owned();
    }
    let from = if at > LINE_MAX - MATCH_LEAD {
        text.floor_char_boundary(at.min(text.len()) - MATCH_LEAD)
    } else {
        0
    };
    let shown = head_bytes(&text[from..], LINE_MAX);
    let before = from;
    let after = text.len() - from - shown.len();
    let mark = |bytes: usize| {
        if bytes > 0 { format!("[truncated: {bytes} bytes]") } else { String::new() }
    };
    format!("{}{shown}{}", mark(before), mark(after))
}
