//! The macro `tool`: parses an async function and renders a function that returns a tool.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, Ident, ItemFn, Lit, LitStr, Meta, Pat, PatType, Result,
    ReturnType, Type,
};

/// The longest name of a tool that providers accept.
const NAME_MAX: usize = 64;

const EFFECTS: &str = "`effect` must be \"pure\", \"idempotent\" or \"once\"";

/// Expands `#[tool(..)]` on a function.
pub(crate) fn expand(arguments: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let options = ToolOptions::parse(arguments)?;
    let function = syn::parse2::<ItemFn>(function)
        .map_err(|error| Error::new(error.span(), "a tool is an `async fn` with a body"))?;
    Ok(ToolFunction::parse(options, function)?.render())
}

/// The arguments of the macro.
#[derive(Default)]
struct ToolOptions {
    effect: Option<Ident>,
    name: Option<LitStr>,
    description: Option<LitStr>,
    subject: Option<LitStr>,
    /// The names of builder methods of `Tool`.
    hints: Vec<Ident>,
}

impl ToolOptions {
    fn parse(arguments: TokenStream) -> Result<Self> {
        let mut options = Self::default();
        syn::meta::parser(|meta| options.parse_argument(&meta)).parse2(arguments)?;
        Ok(options)
    }

    fn parse_argument(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        match name.as_str() {
            "effect" => {
                let text = text_value(meta)?;
                let variant = match text.value().as_str() {
                    "pure" => "Pure",
                    "idempotent" => "Idempotent",
                    "once" => "Once",
                    _ => return Err(Error::new(text.span(), EFFECTS)),
                };
                set_once(&mut self.effect, Ident::new(variant, text.span()), meta)
            }
            "name" => {
                let text = text_value(meta)?;
                check_name(&text.value(), text.span())?;
                set_once(&mut self.name, text, meta)
            }
            "description" => set_once(&mut self.description, text_value(meta)?, meta),
            "subject" => set_once(&mut self.subject, text_value(meta)?, meta),
            "destructive" | "exclusive" | "read_only" => {
                self.hints.push(Ident::new(&name, meta.path.span()));
                Ok(())
            }
            _ => Err(meta.error(
                "unknown argument; there are `effect`, `name`, `description`, `subject`, \
                 `destructive`, `exclusive` and `read_only`",
            )),
        }
    }
}

/// Reads the text of `name = "text"`.
pub(crate) fn text_value(meta: &ParseNestedMeta<'_>) -> Result<LitStr> {
    let value = meta.value().map_err(|_| meta.error("this needs a text: `= \"..\"`"))?;
    let literal: Lit = value.parse().map_err(|_| meta.error("this needs a text: `= \"..\"`"))?;
    match literal {
        Lit::Str(text) => Ok(text),
        other => Err(Error::new(other.span(), "this must be a text in quotes")),
    }
}

pub(crate) fn set_once<T>(
    place: &mut Option<T>,
    value: T,
    meta: &ParseNestedMeta<'_>,
) -> Result<()> {
    if place.replace(value).is_some() {
        return Err(meta.error("this is given twice"));
    }
    Ok(())
}

fn check_name(name: &str, span: Span) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(fits) {
        return Ok(());
    }
    let problem =
        format!("the name of a tool has 1 to {NAME_MAX} ASCII letters, digits, `_` or `-`");
    Err(Error::new(span, problem))
}

/// A function that becomes a tool.
struct ToolFunction {
    function: ItemFn,
    name: String,
    description: String,
    effect: Ident,
    hints: Vec<Ident>,
    has_context: bool,
    parameters: Vec<ToolParameter>,
    subject: Option<Ident>,
}

/// A parameter that becomes an argument of the tool.
struct ToolParameter {
    name: Ident,
    ty: Type,
    /// The attributes of the field: description, serde, schemars.
    attributes: Vec<TokenStream>,
}

impl ToolFunction {
    fn parse(options: ToolOptions, mut function: ItemFn) -> Result<Self> {
        check_signature(&function)?;
        let name = match &options.name {
            Some(name) => name.value(),
            None => {
                let name = function.sig.ident.unraw().to_string();
                check_name(&name, function.sig.ident.span())?;
                name
            }
        };
        let Some(effect) = options.effect else {
            let problem = "state the effect of the tool, as in `#[tool(effect = \"pure\")]`; \
                           \"idempotent\" and \"once\" are the others";
            return Err(Error::new(function.sig.ident.span(), problem));
        };
        let described = options.description.map(|text| text.value());
        let Some(description) = described.or_else(|| doc_text(&function.attrs)) else {
            let problem = "describe the tool in its doc comment, which the model reads";
            return Err(Error::new(function.sig.ident.span(), problem));
        };
        let mut has_context = false;
        let mut parameters = Vec::new();
        for (position, input) in function.sig.inputs.iter_mut().enumerate() {
            let FnArg::Typed(parameter) = input else { continue };
            if !is_context(&parameter.ty) {
                parameters.push(ToolParameter::parse(parameter)?);
            } else if position == 0 {
                has_context = true;
                parameter.attrs.clear();
            } else {
                let problem = "the `ToolContext` must be the first parameter";
                return Err(Error::new_spanned(&parameter.ty, problem));
            }
        }
        let subject = find_subject(options.subject.as_ref(), &parameters)?;
        let hints = options.hints;
        Ok(Self { function, name, description, effect, hints, has_context, parameters, subject })
    }

    fn render(&self) -> TokenStream {
        let Self { function, name, description, effect, hints, .. } = self;
        let ident = &function.sig.ident;
        let visibility = &function.vis;
        let attributes = function.attrs.iter().filter(|attribute| is_for_maker(attribute));
        let mut body = function.clone();
        body.attrs.retain(|attribute| !is_for_callers(attribute));
        body.vis = syn::Visibility::Inherited;
        // A parameter may have the name of the function.
        let called = format_ident!("__brigade_function");
        body.sig.ident = called.clone();
        let names: Vec<&Ident> = self.parameters.iter().map(|parameter| &parameter.name).collect();
        let fields = self.parameters.iter().map(|ToolParameter { name, ty, attributes }| {
            quote! { #(#attributes)* #name: #ty }
        });
        let arguments = format_ident!("__BrigadeArguments");
        let context = format_ident!("__brigade_context");
        let context_argument = self.has_context.then(|| quote! { #context, });
        let subject = self.subject.as_ref().map(|parameter| {
            quote! {
                .subject(|arguments: &#arguments| ::std::string::ToString::to_string(&arguments.#parameter))
            }
        });
        quote! {
            #(#attributes)*
            #visibility fn #ident() -> ::brigade::Tool {
                #[derive(
                    ::brigade::macro_support::serde::Deserialize,
                    ::brigade::macro_support::schemars::JsonSchema,
                )]
                #[serde(crate = "::brigade::macro_support::serde", deny_unknown_fields)]
                #[schemars(crate = "::brigade::macro_support::schemars")]
                struct #arguments {
                    #(#fields,)*
                }
                #body
                ::brigade::Tool::from_fn_with(
                    #name,
                    #description,
                    ::brigade::ToolEffect::#effect,
                    |#context: ::brigade::ToolContext, #arguments { #(#names),* }: #arguments| {
                        #called(#context_argument #(#names),*)
                    },
                )
                #(.#hints())*
                #subject
            }
        }
    }
}

impl ToolParameter {
    /// Parses a parameter, and removes the attributes that belong to the generated field.
    fn parse(parameter: &mut PatType) -> Result<Self> {
        let problem = match &*parameter.ty {
            Type::Reference(_) => Some("an argument must own its value; use `String` for a text"),
            Type::ImplTrait(_) => Some("an argument must have a concrete type"),
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(Error::new_spanned(&parameter.ty, problem));
        }
        let name = match &*parameter.pat {
            Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => {
                name.ident.clone()
            }
            other => {
                let problem = "a parameter of a tool is a plain name, which the model uses too";
                return Err(Error::new_spanned(other, problem));
            }
        };
        let mut attributes = Vec::new();
        for attribute in std::mem::take(&mut parameter.attrs) {
            if attribute.path().is_ident("tool") {
                let description = parse_description(&attribute)?;
                attributes.push(quote! { #[doc = #description] });
            } else if ["doc", "serde", "schemars"]
                .iter()
                .any(|name| attribute.path().is_ident(name))
            {
                attributes.push(quote! { #attribute });
            } else {
                parameter.attrs.push(attribute);
            }
        }
        Ok(Self { name, ty: (*parameter.ty).clone(), attributes })
    }
}

/// Returns true for attributes of the function that callers see.
fn is_for_callers(attribute: &Attribute) -> bool {
    ["doc", "deprecated"].iter().any(|name| attribute.path().is_ident(name))
}

/// Returns true for attributes that the function which makes the tool has. The others belong to the
/// function that the tool calls.
fn is_for_maker(attribute: &Attribute) -> bool {
    let shared = ["allow", "cfg"].iter().any(|name| attribute.path().is_ident(name));
    shared || is_for_callers(attribute)
}

fn check_signature(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(Error::new(signature.fn_token.span(), "a tool must be an `async fn`"));
    }
    if let Some(receiver) = signature.receiver() {
        let problem = "a tool is a free function; give its state to `Tool::from_fn` in a closure";
        return Err(Error::new_spanned(receiver, problem));
    }
    if !signature.generics.params.is_empty() {
        let problem = "a tool must not be generic: its arguments have one schema";
        return Err(Error::new_spanned(&signature.generics, problem));
    }
    if let Some(unsafety) = &signature.unsafety {
        return Err(Error::new(unsafety.span(), "a tool must not be `unsafe`"));
    }
    if matches!(signature.output, ReturnType::Default) {
        let problem = "a tool must return a `Result`, as in `-> Result<String, ToolError>`";
        return Err(Error::new(signature.ident.span(), problem));
    }
    Ok(())
}

/// Returns true for `ToolContext`, with or without a path.
fn is_context(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|segment| segment.ident == "ToolContext")
}

/// Joins the lines of doc comments. Returns `None` if there is no text.
fn doc_text(attributes: &[Attribute]) -> Option<String> {
    let lines = attributes.iter().filter_map(|attribute| {
        let Meta::NameValue(meta) = &attribute.meta else { return None };
        let Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) = &meta.value else { return None };
        let line = line.value();
        let line = line.strip_prefix(' ').unwrap_or(&line).to_owned();
        meta.path.is_ident("doc").then_some(line)
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Reads `#[tool(description = "..")]` of a parameter.
fn parse_description(attribute: &Attribute) -> Result<LitStr> {
    let mut description = None;
    attribute.parse_nested_meta(|meta| {
        if meta.path.is_ident("description") {
            return set_once(&mut description, text_value(&meta)?, &meta);
        }
        Err(meta.error("a parameter has only `description`"))
    })?;
    description.ok_or_else(|| Error::new_spanned(attribute, "a parameter has only `description`"))
}

fn find_subject(subject: Option<&LitStr>, parameters: &[ToolParameter]) -> Result<Option<Ident>> {
    let Some(subject) = subject else { return Ok(None) };
    let is_subject = |parameter: &&ToolParameter| parameter.name.unraw() == subject.value();
    match parameters.iter().find(is_subject) {
        Some(parameter) => Ok(Some(parameter.name.clone())),
        None => Err(Error::new(subject.span(), "the tool has no parameter of this name")),
    }
}
