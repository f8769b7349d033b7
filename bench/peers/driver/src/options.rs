//! The command line of the driver.

use peers_harness::Work;

/// The rounds of a run whose results are written.
const ROUNDS_MIN: usize = 5;

const USAGE: &str = "usage: peers [--rounds N] [--only WORK]... [--no-build]";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) rounds: usize,
    pub(crate) works: Vec<Work>,
    pub(crate) build: bool,
}

impl Options {
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { rounds: ROUNDS_MIN, works: Vec::new(), build: true };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--rounds" => {
                    let rounds = args.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
                    options.rounds = rounds.ok_or("--rounds needs a number above zero")?;
                }
                "--only" => {
                    let work = args.next().and_then(|name| Work::parse(&name));
                    options.works.push(work.ok_or("--only needs the name of a work")?);
                }
                "--no-build" => options.build = false,
                _ => return Err(USAGE.to_owned()),
            }
        }
        if options.works.is_empty() {
            options.works = Work::ALL.to_vec();
        }
        Ok(options)
    }

    /// Says whether the results of this run may replace the written ones.
    pub(crate) fn is_complete(&self) -> bool {
        self.rounds >= ROUNDS_MIN && Work::ALL.iter().all(|work| self.works.contains(work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn only_a_complete_run_is_written() {
        assert!(parse("").unwrap().is_complete());
        assert!(!parse("--rounds 4").unwrap().is_complete());
        assert!(!parse("--only agent").unwrap().is_complete());
    }

    #[test]
    fn unknown_words_are_errors() {
        assert!(parse("--only nothing").is_err());
        assert!(parse("--rounds 0").is_err());
        assert!(parse("now").is_err());
    }
}
