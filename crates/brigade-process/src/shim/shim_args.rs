//! The arguments of a shim.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::boot_id::BootId;
use super::launch_settings::LaunchSettings;
use super::timing::ShimTiming;

/// `run DIRECTORY BOOT CAP GRACE INPUT SETTINGS TIMING WORKING-DIRECTORY -- PROGRAM ARGUMENTS...`
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShimArgs {
    /// The directory for record and output. Absolute, because the shim changes its directory.
    pub(super) directory: PathBuf,
    pub(super) boot_id: BootId,
    pub(super) output_cap: u64,
    /// The grace period of a stop that sets none.
    pub(super) grace: Duration,
    pub(super) input: InputMode,
    pub(super) settings: LaunchSettings,
    pub(super) timing: ShimTiming,
    /// `None` uses the directory in which the shim was started.
    pub(super) working_directory: Option<PathBuf>,
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
}

/// The stdin of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputMode {
    /// A named pipe in the directory, open until an order closes it.
    Open,
    None,
}

impl ShimArgs {
    pub(super) fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Self, &'static str> {
        let mut next = |missing| args.next().ok_or(missing);
        if next("the first argument is `run`")? != "run" {
            return Err("the first argument is `run`");
        }
        let directory = PathBuf::from(next("a directory is missing")?);
        let boot = next("a boot id is missing")?;
        let boot = boot.to_str().and_then(BootId::parse).ok_or("the boot id is 32 hex digits")?;
        let cap = parse_number(&next("a cap is missing")?).ok_or("the cap is a number of bytes")?;
        let grace = parse_number(&next("a grace period is missing")?)
            .ok_or("the grace period is a number of milliseconds")?;
        let input = match next("the input is missing")?.to_str() {
            Some("open") => InputMode::Open,
            Some("none") => InputMode::None,
            _ => return Err("the input is `open` or `none`"),
        };
        let settings = next("the launch settings are missing; pass an empty argument for none")?;
        let settings = settings.to_str().and_then(LaunchSettings::parse);
        let settings = settings.ok_or("the launch settings are invalid")?;
        let timing = next("the timing is missing; pass an empty argument for none")?;
        let timing = timing.to_str().and_then(ShimTiming::parse);
        let timing = timing.ok_or("the timing is invalid")?;
        let working_directory =
            Some(next("a working directory is missing; pass an empty argument for none")?)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from);
        if next("`--` is missing")? != "--" {
            return Err("`--` precedes the program");
        }
        let program = next("a program is missing")?;
        Ok(Self {
            directory: std::path::absolute(directory).map_err(|_| "the directory is not usable")?,
            boot_id: boot,
            output_cap: cap,
            grace: Duration::from_millis(grace),
            input,
            settings,
            timing,
            working_directory,
            program,
            arguments: args.collect(),
        })
    }
}

fn parse_number(text: &OsString) -> Option<u64> {
    text.to_str()?.parse().ok()
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
    fn arguments_are_parsed() {
        let args = parse(GOOD).unwrap();
        assert_eq!(args.directory, PathBuf::from("/d"));
        assert_eq!(args.boot_id, BootId(std::array::from_fn(|at| at as u8)));
        assert_eq!((args.output_cap, args.grace), (8192, Duration::from_millis(1500)));
        assert_eq!(args.input, InputMode::Open);
        assert_eq!(args.timing.dir_check_interval, Duration::from_millis(900));
        assert_eq!(args.working_directory, Some(PathBuf::from("/w")));
        assert_eq!(args.program, "sh");
        assert_eq!(args.arguments, ["-c", "x"]);
        assert_eq!(parse(&GOOD.replace("/w", "")).unwrap().working_directory, None);
        assert_eq!(parse(&GOOD.replace("open", "none")).unwrap().input, InputMode::None);
    }

    #[test]
    fn incomplete_arguments_are_refused() {
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
