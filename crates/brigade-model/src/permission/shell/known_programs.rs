//! Tables of programs: those that run others, and their options with values.

/// A program that runs the program named after it.
pub(super) struct WrapperProgram {
    pub(super) name: &'static str,
    /// Its options that are followed by a value.
    pub(super) value_options: &'static [&'static str],
    /// The number of its own operands before the program.
    pub(super) operands: usize,
}

impl WrapperProgram {
    /// Returns whether an option may be an abbreviation of one with a value, or several in one
    /// word.
    pub(super) fn may_have_value(&self, option: &str) -> bool {
        let is_long = option.starts_with("--");
        let last = option.chars().next_back();
        option.len() > 2
            && self.value_options.iter().any(|value| match is_long {
                true => value.starts_with(option),
                false => value.len() == 2 && value.chars().next_back() == last,
            })
    }
}

const fn wrapper(
    name: &'static str,
    values: &'static [&'static str],
    operands: usize,
) -> WrapperProgram {
    WrapperProgram { name, value_options: values, operands }
}

const WRAPPERS: [WrapperProgram; 24] = [
    wrapper("env", &["-u", "--unset", "-C", "--chdir", "-a", "--argv0"], 0),
    wrapper("timeout", &["-s", "--signal", "-k", "--kill-after"], 1),
    wrapper("nice", &["-n", "--adjustment"], 0),
    wrapper("ionice", &["-c", "--class", "-n", "--classdata"], 0),
    wrapper("nohup", &[], 0),
    wrapper("setsid", &[], 0),
    wrapper("stdbuf", &["-i", "--input", "-o", "--output", "-e", "--error"], 0),
    wrapper(
        "sudo",
        &[
            "-u",
            "--user",
            "-g",
            "--group",
            "-h",
            "--host",
            "-p",
            "--prompt",
            "-C",
            "--close-from",
            "-r",
            "--role",
            "-t",
            "--type",
            "-T",
            "--command-timeout",
            "-U",
            "--other-user",
            "-D",
            "--chdir",
            "-R",
            "--chroot",
        ],
        0,
    ),
    wrapper("doas", &["-u", "-C"], 0),
    wrapper("time", &["-f", "--format", "-o", "--output"], 0),
    wrapper("exec", &["-a"], 0),
    wrapper("command", &[], 0),
    wrapper("builtin", &[], 0),
    wrapper("chroot", &["--userspec", "--groups"], 1),
    wrapper("taskset", &["-p", "--pid"], 1),
    wrapper(
        "chrt",
        &["-T", "--sched-runtime", "-P", "--sched-period", "-D", "--sched-deadline"],
        1,
    ),
    wrapper("faketime", &["-f"], 1),
    wrapper("busybox", &[], 0),
    wrapper("toybox", &[], 0),
    wrapper("setpriv", &["--reuid", "--regid", "--groups", "--securebits", "--pdeathsig"], 0),
    wrapper("fakeroot", &["-l", "--lib", "-s", "-i", "-b", "--fd-base"], 0),
    wrapper("caffeinate", &["-t", "-w"], 0),
    wrapper("eatmydata", &[], 0),
    wrapper("runuser", &["-u", "--user", "-g", "--group", "-G", "--supp-group"], 0),
];

/// Programs that run others behind options of many kinds. Any of their words may be a program, and
/// any quoted text a command line.
const LOOSE_RUNNERS: [&str; 59] = [
    "xargs",
    "parallel",
    "find",
    "fd",
    "watch",
    "flock",
    "unshare",
    "nsenter",
    "strace",
    "ltrace",
    "gdb",
    "valgrind",
    "perf",
    "script",
    "su",
    "systemd-run",
    "firejail",
    "bwrap",
    "xvfb-run",
    "dbus-run-session",
    "torsocks",
    "proxychains",
    "proxychains4",
    "direnv",
    "mise",
    "asdf",
    "nix-shell",
    "nix",
    "npx",
    "uv",
    "poetry",
    "pipenv",
    "bundle",
    "entr",
    "setarch",
    "linux32",
    "linux64",
    "i386",
    "x86_64",
    "uname26",
    "prlimit",
    "choom",
    "ssh-agent",
    "ld.so",
    "numactl",
    "cgexec",
    "capsh",
    "pkexec",
    "runcon",
    "aa-exec",
    "start-stop-daemon",
    "unbuffer",
    "rlwrap",
    "dbus-launch",
    "gosu",
    "su-exec",
    "tini",
    "dumb-init",
    "chpst",
];

pub(super) const SHELLS: [&str; 17] = [
    "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "rbash", "rksh", "rzsh", "lksh",
    "ksh93", "yash", "posh", "csh", "tcsh",
];

/// Shell keywords before a command.
pub(super) const KEYWORDS: [&str; 9] =
    ["if", "then", "elif", "else", "while", "until", "do", "!", "{"];

/// Shell keywords that may be followed by a name before the command.
pub(super) const NAMING_KEYWORDS: [&str; 2] = ["coproc", "function"];

/// Words that begin syntax that only bash and related shells have, at the start of a command.
pub(super) const BASH_KEYWORDS: [&str; 3] = ["[[", "coproc", "function"];

/// Variables whose values bash runs, or reads as functions, before it reads a text.
pub(super) const BASH_VARIABLES: [&str; 2] = ["BASH_ENV=", "BASH_FUNC_"];

/// Shell builtins that set the variables that they are given by name.
pub(super) const VARIABLE_SETTERS: [&str; 7] =
    ["export", "declare", "typeset", "readonly", "local", "read", "printf"];

/// Variables that redefine words of a program.
pub(super) const RENAMING_VARIABLES: [(&str, &str); 4] = [
    ("GIT_CONFIG", "git"),
    ("GIT_EXEC_PATH", "git"),
    ("CARGO_ALIAS_", "cargo"),
    ("CARGO_HOME", "cargo"),
];

pub(super) fn find_wrapper(name: &str) -> Option<&'static WrapperProgram> {
    WRAPPERS.iter().find(|wrapper| wrapper.name == name)
}

pub(super) fn is_loose_runner(name: &str) -> bool {
    // The dynamic loader's name contains that of its machine.
    LOOSE_RUNNERS.contains(&name) || name.starts_with("ld-") && name.contains(".so")
}

/// Returns whether all options with a value of a listed program are listed.
pub(super) fn has_all_value_options(program: &str) -> bool {
    matches!(program, "git" | "cargo")
}

/// Returns the options with a value that may precede the subcommand. `None` for a program that is
/// not listed.
pub(super) fn value_options(program: &str) -> Option<&'static [&'static str]> {
    Some(match program {
        "git" => &[
            "-C",
            "-c",
            "--git-dir",
            "--work-tree",
            "--namespace",
            "--super-prefix",
            "--config-env",
            "--attr-source",
        ],
        "cargo" => &["--color", "--config", "-Z", "-C", "--explain"],
        "docker" | "podman" => &[
            "-H",
            "--host",
            "-l",
            "--log-level",
            "--config",
            "-c",
            "--context",
            "--tlscacert",
            "--tlscert",
            "--tlskey",
            "--connection",
            "--identity",
            "--root",
            "--runroot",
            "--url",
        ],
        "gh" => &["-R", "--repo", "--hostname"],
        "go" => &["-C"],
        "npm" => &[
            "--prefix",
            "-C",
            "--registry",
            "--loglevel",
            "-w",
            "--workspace",
            "--userconfig",
            "--globalconfig",
            "--cache",
            "--otp",
            "--tag",
        ],
        "pnpm" => &["-C", "--dir", "-F", "--filter", "--loglevel", "--reporter"],
        "yarn" => &["--cwd", "--registry", "--cache-folder"],
        "kubectl" => &[
            "-n",
            "--namespace",
            "--context",
            "--cluster",
            "--kubeconfig",
            "-s",
            "--server",
            "--user",
            "--token",
            "--as",
            "--as-group",
            "-v",
            "--v",
            "--request-timeout",
            "--cache-dir",
            "--certificate-authority",
            "--client-certificate",
            "--client-key",
            "--profile",
        ],
        "helm" => &[
            "-n",
            "--namespace",
            "--kube-context",
            "--kubeconfig",
            "--registry-config",
            "--repository-config",
            "--repository-cache",
        ],
        "systemctl" => &[
            "-H",
            "--host",
            "-M",
            "--machine",
            "-t",
            "--type",
            "-p",
            "--property",
            "-s",
            "--signal",
            "--root",
            "-n",
            "--lines",
            "-o",
            "--output",
        ],
        "apt" | "apt-get" => &["-o", "--option", "-c", "--config-file", "-t", "--target-release"],
        "aws" => &[
            "--profile",
            "--region",
            "--endpoint-url",
            "--output",
            "--query",
            "--color",
            "--ca-bundle",
            "--cli-read-timeout",
            "--cli-connect-timeout",
        ],
        "gcloud" => &[
            "--project",
            "--account",
            "--configuration",
            "--format",
            "--verbosity",
            "--billing-project",
            "--impersonate-service-account",
        ],
        _ => return None,
    })
}

/// Git settings that run nothing and rename nothing, by the beginning of their names.
const HARMLESS_SETTINGS: [&str; 12] = [
    "color.",
    "user.name=",
    "user.email=",
    "advice.",
    "core.quotepath=",
    "core.autocrlf=",
    "core.safecrlf=",
    "core.abbrev=",
    "commit.gpgsign=",
    "tag.gpgsign=",
    "init.defaultbranch=",
    "safe.directory=",
];

/// Returns whether this setting leaves the meaning of git's words unchanged.
pub(super) fn is_harmless_setting(setting: &str) -> bool {
    let setting = setting.to_ascii_lowercase();
    HARMLESS_SETTINGS.iter().any(|harmless| setting.starts_with(harmless))
}
