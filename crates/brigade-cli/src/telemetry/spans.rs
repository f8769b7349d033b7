//! Converts `tracing` spans to OpenTelemetry spans.
//!
//! The ids of an attempt are derived from its session, task and attempt. So a child finds the span
//! of its parent, whichever daemon ran it, and nothing about spans is stored. The SDK generates its
//! own ids, so spans are built here.

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

/// A layer that passes ended spans to a processor.
#[derive(Debug)]
pub(super) struct SpanLayer<P> {
    processor: Arc<P>,
    scope: InstrumentationScope,
    ids: RandomIdGenerator,
}

/// The ids of a span and of its parent.
#[derive(Debug)]
struct SpanIds {
    context: SpanContext,
    parent: SpanId,
}

/// A span that has not ended.
#[derive(Debug)]
struct OpenSpan {
    ids: SpanIds,
    started_at: SystemTime,
    fields: SpanFields,
}

impl<P: SpanProcessor> SpanLayer<P> {
    pub(super) fn new(processor: Arc<P>) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let scope = InstrumentationScope::builder("brigade").with_version(version).build();
        Self { processor, scope, ids: RandomIdGenerator::default() }
    }

    fn new_span_ids(&self, fields: &SpanFields, parent: Option<SpanContext>) -> SpanIds {
        if let Some(context) = fields.attempt_context() {
            return SpanIds { context, parent: SpanId::INVALID };
        }
        let span = self.ids.new_span_id();
        match parent {
            Some(parent) => {
                SpanIds { context: span_context(parent.trace_id(), span), parent: parent.span_id() }
            }
            None => SpanIds {
                context: span_context(self.ids.new_trace_id(), span),
                parent: SpanId::INVALID,
            },
        }
    }
}

impl<P, S> Layer<S> for SpanLayer<P>
where
    P: SpanProcessor + 'static,
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, layer: Context<'_, S>) {
        let Some(span) = layer.span(id) else { return };
        let mut fields = SpanFields::default();
        attributes.record(&mut fields);
        let mut ancestors = span.scope().skip(1);
        let parent = ancestors
            .find_map(|span| Some(span.extensions().get::<OpenSpan>()?.ids.context.clone()));
        let ids = self.new_span_ids(&fields, parent);
        span.extensions_mut().insert(OpenSpan { ids, started_at: now(), fields });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, layer: Context<'_, S>) {
        let Some(span) = layer.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<OpenSpan>() {
            values.record(&mut open.fields);
        }
    }

    fn on_close(&self, id: Id, layer: Context<'_, S>) {
        let Some(span) = layer.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<OpenSpan>() else { return };
        let OpenSpan { ids, started_at, fields } = open;
        let mut links = SpanLinks::default();
        links.links.extend(fields.parent_attempt_context().map(Link::with_context));
        self.processor.on_end(SpanData {
            span_context: ids.context,
            parent_span_id: ids.parent,
            parent_span_is_remote: false,
            span_kind: fields.kind,
            name: fields.name.map_or(span.name().into(), Into::into),
            start_time: started_at,
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

/// The recorded fields of a span.
#[derive(Debug)]
struct SpanFields {
    name: Option<String>,
    kind: SpanKind,
    status: Status,
    attributes: Vec<KeyValue>,
}

impl Default for SpanFields {
    fn default() -> Self {
        Self { name: None, kind: SpanKind::Internal, status: Status::Unset, attributes: Vec::new() }
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
                    // The semantic conventions require a list, which `tracing` does not support.
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
        match self.get("brigade.session.id")? {
            Value::String(session) => Some(session),
            _ => None,
        }
    }

    /// Returns the context of an attempt, if the span is one.
    fn attempt_context(&self) -> Option<SpanContext> {
        let task = self.number("brigade.task")?;
        let attempt = self.number("brigade.attempt")?;
        Some(derive_context(self.session_id()?.as_str(), task, attempt))
    }

    /// Returns the context of the attempt that spawned this one. It may have ended in another
    /// daemon.
    fn parent_attempt_context(&self) -> Option<SpanContext> {
        let task = self.number("brigade.parent.task")?;
        let attempt = self.number("brigade.parent.attempt")?;
        Some(derive_context(self.session_id()?.as_str(), task, attempt))
    }
}

/// Derives the ids of an attempt: one trace per task, one span per attempt.
fn derive_context(session: &str, task: i64, attempt: i64) -> SpanContext {
    let trace = xxh3_128(format!("{session}/{task}").as_bytes());
    let span = xxh3_64(format!("{session}/{task}/{attempt}").as_bytes());
    // Zero is not a valid id.
    span_context(TraceId::from(trace.max(1)), SpanId::from(span.max(1)))
}

fn span_context(trace: TraceId, span: SpanId) -> SpanContext {
    SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::default())
}

#[expect(clippy::disallowed_methods, reason = "the time of a span, which decides nothing")]
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
