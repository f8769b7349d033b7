//! What `tracing` reports, as spans of OpenTelemetry.
//!
//! The ids of an attempt are made from its tree, task and attempt, so that a child finds its parent's
//! span whichever daemon that ran in: nothing about spans is stored, and a link does not depend on
//! whether anybody listened at the time. The SDK makes up its ids itself, which is why spans are put
//! together here.

use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{
    IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanLinks, SpanProcessor,
};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Hands spans that are over to a processor.
#[derive(Debug)]
pub(super) struct SpanLayer<P> {
    processor: Arc<P>,
    scope: InstrumentationScope,
    ids: RandomIdGenerator,
}

/// A span that is not over.
#[derive(Debug)]
struct OpenSpan {
    context: SpanContext,
    parent: SpanId,
    started_at: SystemTime,
    fields: SpanFields,
}

impl<P: SpanProcessor> SpanLayer<P> {
    pub(super) fn new(processor: Arc<P>) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let scope = InstrumentationScope::builder("brigade").with_version(version).build();
        Self { processor, scope, ids: RandomIdGenerator::default() }
    }

    fn new_span_context(
        &self,
        fields: &SpanFields,
        within: Option<SpanContext>,
    ) -> (SpanContext, SpanId) {
        if let Some((trace, span)) = fields.attempt_ids() {
            return (span_context(trace, span), SpanId::INVALID);
        }
        let span = self.ids.new_span_id();
        match within {
            Some(parent) => (span_context(parent.trace_id(), span), parent.span_id()),
            None => (span_context(self.ids.new_trace_id(), span), SpanId::INVALID),
        }
    }
}

impl<P, S> Layer<S> for SpanLayer<P>
where
    P: SpanProcessor + 'static,
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, at: Context<'_, S>) {
        let Some(span) = at.span(id) else { return };
        let mut fields = SpanFields::default();
        attributes.record(&mut fields);
        let mut above = span.scope().skip(1);
        let within =
            above.find_map(|span| Some(span.extensions().get::<OpenSpan>()?.context.clone()));
        let (context, parent) = self.new_span_context(&fields, within);
        span.extensions_mut().insert(OpenSpan { context, parent, started_at: now(), fields });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, at: Context<'_, S>) {
        let Some(span) = at.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<OpenSpan>() {
            values.record(&mut open.fields);
        }
    }

    fn on_close(&self, id: Id, at: Context<'_, S>) {
        let Some(span) = at.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<OpenSpan>() else { return };
        let OpenSpan { context, parent, started_at: began, fields } = open;
        let mut links = SpanLinks::default();
        links.links.extend(fields.parent_attempt_context().map(Link::with_context));
        self.processor.on_end(SpanData {
            span_context: context,
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: fields.kind,
            name: fields.name.map_or(span.name().into(), Into::into),
            start_time: began,
            end_time: now(),
            attributes: fields.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: fields.status,
            instrumentation_scope: self.scope.clone(),
        });
    }
}

/// What a span says of itself.
#[derive(Debug)]
struct SpanFields {
    name: Option<String>,
    kind: SpanKind,
    status: Status,
    attributes: Vec<KeyValue>,
}

impl Default for SpanFields {
    fn default() -> Self {
        let (kind, status) = (SpanKind::Internal, Status::Unset);
        Self { name: None, kind, status, attributes: Vec::new() }
    }
}

impl SpanFields {
    fn record_value(&mut self, field: &Field, value: Value) {
        match field.name() {
            "otel.name" => self.name = Some(value.to_string()),
            "otel.kind" if value.as_str() == "client" => self.kind = SpanKind::Client,
            "otel.status_code" if value.as_str() == "ERROR" => self.status = Status::error(""),
            name if name.starts_with("otel.") => {}
            name => {
                let value = match (name, value) {
                    // The conventions want a list, which `tracing` has not.
                    ("gen_ai.response.finish_reasons", Value::String(one)) => {
                        Value::Array(Array::String(vec![one]))
                    }
                    (_, value) => value,
                };
                match self.attributes.iter_mut().find(|known| known.key.as_str() == name) {
                    Some(known) => known.value = value,
                    None => self.attributes.push(KeyValue::new(name, value)),
                }
            }
        }
    }

    fn get(&self, name: &str) -> Option<&Value> {
        let found = self.attributes.iter().find(|known| known.key.as_str() == name);
        found.map(|found| &found.value)
    }

    fn number(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Value::I64(number) => Some(*number),
            _ => None,
        }
    }

    fn session_id(&self) -> Option<&StringValue> {
        match self.get("brigade.tree")? {
            Value::String(tree) => Some(tree),
            _ => None,
        }
    }

    /// The ids of the attempt that this is, if it is one.
    fn attempt_ids(&self) -> Option<(TraceId, SpanId)> {
        let (task, attempt) = (self.number("brigade.task")?, self.number("brigade.attempt")?);
        Some(derive_ids(self.session_id()?.as_str(), task, attempt))
    }

    /// The attempt that this one was spawned by. It may be over, and of another daemon.
    fn parent_attempt_context(&self) -> Option<SpanContext> {
        let task = self.number("brigade.parent.task")?;
        let attempt = self.number("brigade.parent.attempt")?;
        let (trace, span) = derive_ids(self.session_id()?.as_str(), task, attempt);
        Some(span_context(trace, span))
    }
}

/// One trace per task, one span in it per attempt.
fn derive_ids(tree: &str, task: i64, attempt: i64) -> (TraceId, SpanId) {
    let trace = xxh3_128(format!("{tree}/{task}").as_bytes());
    let span = xxh3_64(format!("{tree}/{task}/{attempt}").as_bytes());
    // Zero is no id.
    (TraceId::from(trace.max(1)), SpanId::from(span.max(1)))
}

fn span_context(trace: TraceId, span: SpanId) -> SpanContext {
    SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::default())
}

#[expect(clippy::disallowed_methods, reason = "when something was seen, which decides nothing")]
fn now() -> SystemTime {
    SystemTime::now()
}

impl Visit for SpanFields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.record_value(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_value(field, value.to_owned().into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.record_value(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record_value(field, i64::try_from(value).unwrap_or(i64::MAX).into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.record_value(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.record_value(field, value.into());
    }
}
