//! What a shim is told when it is started, as its arguments.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::launch_settings::LaunchSettings;
use super::timing::ShimTiming;

/// `run DIRECTORY BOOT CAP GRACE INPUT SURROUNDINGS TIMING WORKING-DIRECTORY -- PROGRAM ARGUMENTS...`
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShimArgs {
    /// Where the record and the output go. Absolute, because the shim leaves its own directory.
    pub(super) directory: PathBuf,
    pub(super) boot_id: [u8; 16],
    pub(super) output_cap: u64,
    /// Between the kind and the firm part of a stop, where the stop does not say otherwise.
    pub(super) grace: Duration,
    pub(super) input: InputMode,
    pub(super) settings: LaunchSettings,
    pub(super) timing: ShimTiming,
    /// None leaves the command where the shim was started.
    pub(super) working_directory: Option<PathBuf>,
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
}

/// What the command reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputMode {
    /// A pipe with a name in the directory, open until it is closed on demand.
    Open,
    None,
}

impl ShimArgs {
    pub(super) fn parse(mut given: impl Iterator<Item = OsString>) -> Result<Self, &'static str> {
        let mut next = |missing| given.next().ok_or(missing);
        if next("the first argument is `run`")? != "run" {
            return Err("the first argument is `run`");
        }
        let directory = PathBuf::from(next("a directory is missing")?);
        let boot =
            parse_boot_id(&next("a boot id is missing")?).ok_or("the boot id is 32 hex digits")?;
        let cap = parse_number(&next("a cap is missing")?).ok_or("the cap is a number of bytes")?;
        let grace =
            parse_number(&next("a grace is missing")?).ok_or("the grace is milliseconds")?;
        let input = match next("the input is missing")?.to_str() {
            Some("open") => InputMode::Open,
            Some("none") => InputMode::None,
            _ => return Err("the input is `open` or `none`"),
        };
        let surroundings = next("the surroundings are missing, maybe empty")?;
        let surroundings = surroundings.to_str().and_then(LaunchSettings::parse);
        let surroundings = surroundings.ok_or("the surroundings are not understood")?;
        let timing = next("the timing is missing, maybe empty")?;
        let timing = timing.to_str().and_then(ShimTiming::parse);
        let timing = timing.ok_or("the timing is not understood")?;
        let working_directory = Some(next("a working directory is missing, maybe an empty one")?)
            .filter(|path| !path.is_empty())
            .map(PathBuf::from);
        if next("`--` is missing")? != "--" {
            return Err("`--` stands before the command");
        }
        let program = next("a command is missing")?;
        Ok(Self {
            directory: std::path::absolute(directory).map_err(|_| "the directory is not usable")?,
            boot_id: boot,
            output_cap: cap,
            grace: Duration::from_millis(grace),
            input,
            settings: surroundings,
            timing,
            working_directory,
            program,
            arguments: given.collect(),
        })
    }
}

fn parse_number(text: &OsString) -> Option<u64> {
    text.to_str()?.parse().ok()
}

fn parse_boot_id(text: &OsString) -> Option<[u8; 16]> {
    let digits = text.to_str().filter(|text| text.len() == 32 && text.is_ascii())?;
    let mut id = [0; 16];
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "run /d 000102030405060708090a0b0c0d0e0f 8192 1500 open layers=0 look=900 /w -- sh -c x";

    fn parse(line: &str) -> Result<ShimArgs, &'static str> {
        ShimArgs::parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn orders_are_understood() {
        let orders = parse(GOOD).unwrap();
        assert_eq!(orders.directory, PathBuf::from("/d"));
        assert_eq!(orders.boot_id, std::array::from_fn(|at| at as u8));
        assert_eq!((orders.output_cap, orders.grace), (8192, Duration::from_millis(1500)));
        assert_eq!(orders.input, InputMode::Open);
        assert_eq!(orders.timing.dir_check_interval, Duration::from_millis(900));
        assert_eq!(orders.working_directory, Some(PathBuf::from("/w")));
        assert_eq!(orders.program, "sh");
        assert_eq!(orders.arguments, ["-c", "x"]);
        assert_eq!(parse(&GOOD.replace("/w", "")).unwrap().working_directory, None);
        assert_eq!(parse(&GOOD.replace("open", "none")).unwrap().input, InputMode::None);
    }

    #[test]
    fn orders_that_are_not_whole_are_refused() {
        let words: Vec<&str> = GOOD.split(' ').collect();
        for count in 0..11 {
            assert!(parse(&words[..count].join(" ")).is_err(), "{count} words");
        }
        for (word, wrong) in [
            ("8192", "8k"),
            ("1500", "-1"),
            ("open", "maybe"),
            ("0001", "zz01"),
            ("layers", "l"),
            ("look", "l"),
        ] {
            assert!(parse(&GOOD.replace(word, wrong)).is_err(), "{wrong}");
        }
    }
}
