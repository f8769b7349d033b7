//! The stage `instructions`: counts the instructions of the hottest paths under valgrind, and
//! compares them with the counts in the repository.
//!
//! Instructions hardly depend on the machine and its load, so a small regression is visible. They
//! depend on the compiler and the C library. A build with others is counted and not compared.
//! `cargo xtask instructions --update` writes the counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::cargo_command;
use crate::test_stages::{has_program, install};
use crate::tidy::workspace_root;

const COUNTS_FILE: &str = "crates/brigade-runtime/benches/instructions.toml";

/// The difference to a stored count that is not a regression, in percent. Hash tables have random
/// seeds and ids are random, so counts of the same program differ by up to 0.3 %. Unrelated code
/// that changes what the compiler inlines makes another percent.
const TOLERANCE_PERCENT: u64 = 3;

/// The difference that is never a regression, in instructions. Two checkouts of the same code can be
/// inlined differently: that moved a path of 1,700 instructions by 170.
const TOLERANCE_LEAST: u64 = 200;

/// A path of the benchmark, and the numbers of repetitions whose difference is counted.
#[derive(Clone, Copy, Debug)]
struct CountedPath {
    name: &'static str,
    few: u64,
    many: u64,
}

const fn path(name: &'static str, few: u64, many: u64) -> CountedPath {
    CountedPath { name, few, many }
}

/// The paths of `crates/brigade-runtime/benches/instructions.rs`.
const PATHS: [CountedPath; 11] = [
    path("job_on_memory", 50, 250),
    path("job_on_sqlite", 50, 250),
    path("wait", 50, 250),
    path("send_and_receive", 50, 250),
    path("receive_all_100", 5, 25),
    path("stop_one", 50, 250),
    path("stop_tree_101", 5, 25),
    path("recorded_step", 50, 250),
    path("agent_with_one_tool_call", 20, 100),
    path("decide_and_apply_spawn", 50, 250),
    path("encode_event", 50, 250),
];

/// The programs that decide a count, besides our code.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BuildTools {
    rustc: String,
    target: String,
    libc: String,
}

/// Instructions of one repetition, by path.
type PathCounts = BTreeMap<String, u64>;

/// The counts of one build.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InstructionCounts {
    tools: BuildTools,
    counts: PathCounts,
}

/// Counts all paths and compares them with the stored counts.
pub(crate) fn check() -> Result<(), String> {
    let counted = count_paths()?;
    let file = workspace_root().join(COUNTS_FILE);
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let stored = parse_counts(&text)?;
    println!("{}", render_table(&counted.counts, &stored.counts));
    if stored.tools != counted.tools {
        println!("not compared: the counts are of {:?}, this is {:?}", stored.tools, counted.tools);
        return Ok(());
    }
    let regressions = find_regressions(&counted.counts, &stored.counts);
    if regressions.is_empty() {
        return Ok(());
    }
    Err(format!(
        "more than {TOLERANCE_PERCENT} % and {TOLERANCE_LEAST} above {COUNTS_FILE}: {}. If that is \
         intended, run `cargo xtask instructions --update`",
        regressions.join(", ")
    ))
}

/// Counts all paths and stores the counts.
pub(crate) fn update() -> Result<(), String> {
    let counted = count_paths()?;
    let file = workspace_root().join(COUNTS_FILE);
    if let Ok(text) = std::fs::read_to_string(&file) {
        println!("{}", render_table(&counted.counts, &parse_counts(&text)?.counts));
    }
    std::fs::write(&file, render_counts(&counted)).map_err(|e| format!("{}: {e}", file.display()))
}

fn count_paths() -> Result<InstructionCounts, String> {
    if !has_program("valgrind") && !install(&["valgrind"]) {
        return Err("valgrind cannot be installed".into());
    }
    let program = build_benchmark()?;
    let mut counts = PathCounts::new();
    for path in PATHS {
        let few = count_instructions(&program, path.name, path.few)?;
        let many = count_instructions(&program, path.name, path.many)?;
        let each = many.saturating_sub(few) / (path.many - path.few);
        counts.insert(path.name.to_owned(), each);
    }
    Ok(InstructionCounts { tools: find_tools()?, counts })
}

/// Builds the benchmark and returns its path.
fn build_benchmark() -> Result<PathBuf, String> {
    let mut cargo = cargo_command();
    cargo.args(["bench", "--no-run", "--package", "brigade-runtime", "--bench", "instructions"]);
    // Without the default features, since each would take time to build.
    cargo.args(["--no-default-features", "--features", "agents"]);
    cargo.args(["--profile", "instructions"]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    let output = cargo.stderr(std::process::Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err("the benchmark cannot be built".into());
    }
    find_executable(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| "Cargo names no benchmark".into())
}

/// Finds the executable of the benchmark in Cargo's messages.
fn find_executable(messages: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
    messages
        .filter(|message: &serde_json::Value| message["target"]["name"] == "instructions")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Counts the instructions of the whole program with this number of repetitions.
fn count_instructions(program: &Path, path: &str, repeats: u64) -> Result<u64, String> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    let output = valgrind.arg(program).arg(path).arg(repeats.to_string()).output();
    let output = output.map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let count = parse_instruction_count(&text).filter(|_| output.status.success());
    count.ok_or_else(|| format!("{path}: valgrind failed with {}:\n{text}", output.status))
}

/// Reads the count from a line such as `==7== I   refs:      1,234`.
fn parse_instruction_count(output: &str) -> Option<u64> {
    let line = output.lines().rev().find(|line| line.contains("refs:"))?;
    let (_, number) = line.rsplit_once(' ')?;
    number.replace(',', "").parse().ok()
}

fn find_tools() -> Result<BuildTools, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let rustc = read_output(Command::new(rustc).arg("-vV"))?;
    let field = |name: &str| {
        let found = rustc.lines().find_map(|line| line.strip_prefix(name));
        found.map(|value| value.trim().to_owned()).ok_or(format!("rustc has no {name}"))
    };
    let libc = read_output(Command::new("ldd").arg("--version"))?;
    let libc = libc.lines().next().and_then(|line| line.rsplit(' ').next()).unwrap_or_default();
    Ok(BuildTools { rustc: field("rustc ")?, target: field("host:")?, libc: libc.to_owned() })
}

fn read_output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn parse_counts(text: &str) -> Result<InstructionCounts, String> {
    let table: toml::Table = text.parse().map_err(|error| format!("{COUNTS_FILE}: {error}"))?;
    let field = |name: &str| match table.get(name).and_then(toml::Value::as_str) {
        Some(value) => Ok(value.to_owned()),
        None => Err(format!("{COUNTS_FILE} has no {name}")),
    };
    let tools =
        BuildTools { rustc: field("rustc")?, target: field("target")?, libc: field("libc")? };
    let counts = table.get("counts").and_then(toml::Value::as_table);
    let counts = counts.ok_or(format!("{COUNTS_FILE} has no counts"))?;
    let mut read = PathCounts::new();
    for (path, count) in counts {
        let count = count.as_integer().and_then(|count| u64::try_from(count).ok());
        read.insert(path.clone(), count.ok_or(format!("{COUNTS_FILE}: {path} is not a count"))?);
    }
    Ok(InstructionCounts { tools, counts: read })
}

fn render_counts(counted: &InstructionCounts) -> String {
    let BuildTools { rustc, target, libc } = &counted.tools;
    let mut text = format!(
        "# Instructions of one repetition of each path. Written by `cargo xtask instructions \
         --update`.\nrustc = {rustc:?}\ntarget = {target:?}\nlibc = {libc:?}\n\n[counts]\n"
    );
    for (path, count) in &counted.counts {
        let _ = writeln!(text, "{path} = {count}");
    }
    text
}

fn render_table(counted: &PathCounts, stored: &PathCounts) -> String {
    let mut text = "| path | instructions | stored | difference |\n|---|---|---|---|".to_owned();
    for (path, count) in counted {
        let _ = match stored.get(path) {
            Some(stored) => {
                let difference = percent_above(*count, *stored);
                write!(text, "\n| {path} | {count} | {stored} | {difference:+.2} % |")
            }
            None => write!(text, "\n| {path} | {count} | | |"),
        };
    }
    text
}

/// Returns a line for each path whose count is above the tolerance, or which has no stored count.
fn find_regressions(counted: &PathCounts, stored: &PathCounts) -> Vec<String> {
    let found = counted.iter().filter_map(|(path, count)| match stored.get(path) {
        Some(stored) if *count > stored + tolerance(*stored) => {
            Some(format!("{path} by {:.1} %", percent_above(*count, *stored)))
        }
        Some(_) => None,
        None => Some(format!("{path} has no stored count")),
    });
    found.collect()
}

fn tolerance(stored: u64) -> u64 {
    (stored * TOLERANCE_PERCENT / 100).max(TOLERANCE_LEAST)
}

fn percent_above(count: u64, stored: u64) -> f64 {
    (count as f64 / stored as f64 - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(paths: &[(&str, u64)]) -> PathCounts {
        paths.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect()
    }

    #[test]
    fn a_count_above_the_tolerance_is_a_regression() {
        let stored = counts(&[("wait", 10_000), ("stop_one", 10_000), ("encode_event", 10_000)]);
        let counted = counts(&[("wait", 10_300), ("stop_one", 10_301), ("encode_event", 5_000)]);
        assert_eq!(find_regressions(&counted, &stored), ["stop_one by 3.0 %"]);
    }

    #[test]
    fn a_few_instructions_of_a_short_path_are_no_regression() {
        let stored = counts(&[("wait", 1_650), ("stop_one", 1_650)]);
        let counted = counts(&[("wait", 1_850), ("stop_one", 1_851)]);
        assert_eq!(find_regressions(&counted, &stored), ["stop_one by 12.2 %"]);
    }

    #[test]
    fn a_path_without_a_stored_count_is_a_regression() {
        let found = find_regressions(&counts(&[("wait", 1)]), &PathCounts::new());
        assert_eq!(found, ["wait has no stored count"]);
    }

    #[test]
    fn stored_counts_are_read_as_they_are_written() {
        let tools =
            BuildTools { rustc: "1.95.0 (x)".into(), target: "x86_64".into(), libc: "2.36".into() };
        let counted = InstructionCounts { tools, counts: counts(&[("wait", 7), ("stop_one", 9)]) };
        assert_eq!(parse_counts(&render_counts(&counted)), Ok(counted));
    }

    #[test]
    fn the_stored_counts_are_of_the_paths() {
        let text = std::fs::read_to_string(workspace_root().join(COUNTS_FILE)).unwrap();
        let stored: Vec<String> = parse_counts(&text).unwrap().counts.into_keys().collect();
        let mut paths = PATHS.map(|path| path.name);
        paths.sort_unstable();
        assert_eq!(stored, paths);
    }

    #[test]
    fn the_count_of_valgrind_is_read() {
        let output = "==7== Cachegrind, a cache and branch-prediction profiler\n==7== \n\
                      ==7== I   refs:      1,234,567\n";
        assert_eq!(parse_instruction_count(output), Some(1_234_567));
        assert_eq!(parse_instruction_count("==7== killed"), None);
    }

    #[test]
    fn the_benchmark_is_found_in_the_messages_of_cargo() {
        let messages = "{\"target\":{\"name\":\"brigade\"},\"executable\":null}\n\
                        {\"target\":{\"name\":\"instructions\"},\"executable\":\"/t/i-1\"}\n";
        assert_eq!(find_executable(messages), Some(PathBuf::from("/t/i-1")));
    }
}
