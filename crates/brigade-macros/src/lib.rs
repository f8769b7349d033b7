//! Attribute macros of Brigade. Programs use them as `brigade::tool` and `brigade::job`, with the
//! feature `macros` of the crate `brigade`; the generated code names that crate.
//!
//! Each macro has a module that parses its input into a struct and renders the generated code.
//!
//! - `tool_macro`: the macro `tool`.
//! - `job_macro`: the macro `job`.

mod job_macro;
mod tool_macro;

use proc_macro::TokenStream;

/// Turns an async function into a function of the same name that returns a `brigade::Tool`.
///
/// - The doc comment of the function is the description for the model.
/// - The parameters are the arguments of the tool. Their doc comments, or `#[tool(description = "..")]`,
///   are their descriptions. `#[serde(..)]` and `#[schemars(..)]` on a parameter apply to the argument.
/// - A first parameter of type `ToolContext` gets the context of the call.
/// - The result is as for `Tool::from_fn`.
///
/// | argument of the macro | meaning |
/// |---|---|
/// | `effect = ".."` | `pure`, `idempotent` or `once`; required |
/// | `name = ".."` | another name than that of the function |
/// | `description = ".."` | another description than the doc comment |
/// | `subject = ".."` | the parameter that patterns of permission rules match; its type implements `Display` |
/// | `destructive`, `exclusive`, `read_only` | the hint of that name |
#[proc_macro_attribute]
pub fn tool(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let expanded = tool_macro::expand(arguments.into(), function.into());
    expanded.unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Adds a constant to an async function that is a job: its name with the types of its arguments and
/// its result.
///
/// The constant has the name of the function in upper case: `BAKE` for `bake`. The job is registered
/// with `builder.job(BAKE, bake)` and spawned with `BAKE.with(arguments)`. `name = ".."` gives the job
/// another name than that of the function, such as `bake.v2` for a new version.
#[proc_macro_attribute]
pub fn job(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let expanded = job_macro::expand(arguments.into(), function.into());
    expanded.unwrap_or_else(|error| error.to_compile_error()).into()
}
