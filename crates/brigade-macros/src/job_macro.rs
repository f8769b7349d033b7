//! The macro `job`: parses an async function and adds the constant that names the job.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{Error, FnArg, GenericArgument, ItemFn, LitStr, PathArguments, Result, ReturnType, Type};

use crate::tool_macro::{set_once, text_value};

const SIGNATURE: &str =
    "a job is an `async fn(ctx: JobContext, arguments: T) -> Result<R, JobError>`";

/// Expands `#[job]` on a function.
pub(crate) fn expand(arguments: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let mut name: Option<LitStr> = None;
    let parser = syn::meta::parser(|meta| {
        if meta.path.is_ident("name") {
            return set_once(&mut name, text_value(&meta)?, &meta);
        }
        Err(meta.error("unknown argument; there is `name`"))
    });
    parser.parse2(arguments)?;
    let function = syn::parse2::<ItemFn>(function)
        .map_err(|error| Error::new(error.span(), "a job is an `async fn` with a body"))?;
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(Error::new(signature.fn_token.span(), "a job is an `async fn`"));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new(signature.generics.span(), "a job has no type parameters"));
    }
    let [FnArg::Typed(_), FnArg::Typed(argument)] = &Vec::from_iter(&signature.inputs)[..] else {
        return Err(Error::new(signature.inputs.span(), SIGNATURE));
    };
    let result = result_type(&signature.output)?;
    let plain_name = signature.ident.unraw().to_string();
    let job_name = name.map_or_else(|| plain_name.clone(), |name| name.value());
    if job_name.is_empty() {
        return Err(Error::new(signature.ident.span(), "a job has a name"));
    }
    let constant = format_ident!("{}", plain_name.to_uppercase(), span = signature.ident.span());
    let visibility = &function.vis;
    let doc = format!("The job `{job_name}`, for its registration and its tasks.");
    let argument = &argument.ty;
    Ok(quote! {
        #function

        #[doc = #doc]
        #visibility const #constant: ::brigade::Job<#argument, #result> =
            ::brigade::Job::new(#job_name);
    })
}

/// Returns the type in `Result<type, ..>`.
fn result_type(output: &ReturnType) -> Result<&Type> {
    let wrong = || Error::new(output.span(), SIGNATURE);
    let ReturnType::Type(_, ty) = output else { return Err(wrong()) };
    let Type::Path(path) = &**ty else { return Err(wrong()) };
    let last = path.path.segments.last().filter(|last| last.ident == "Result");
    let PathArguments::AngleBracketed(generic) = &last.ok_or_else(wrong)?.arguments else {
        return Err(wrong());
    };
    match generic.args.first() {
        Some(GenericArgument::Type(result)) => Ok(result),
        _ => Err(wrong()),
    }
}
