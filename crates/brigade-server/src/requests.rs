//! The handlers of the requests, one file each.

use brigade_model::refusal::Refusal;
use brigade_protocol::requests::AnyRequest;
use serde_json::value::RawValue;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler, ResponseSink, to_raw_json};

macro_rules! define_handlers {
    ($($module:ident :: $variant:ident($request:ident)),* $(,)?) => {
        $(pub(crate) mod $module;)*

        /// Runs the handler of a request, and encodes its reply.
        pub(crate) async fn dispatch(
            request: AnyRequest,
            context: &RequestContext,
            sink: ResponseSink,
        ) -> Result<Box<RawValue>, Refusal> {
            match request {
                $(AnyRequest::$variant(request) => {
                    to_raw_json(&request.handle(context, &ItemSender::new(sink)).await?)
                })*
            }
        }
    };
}

brigade_protocol::with_requests!(define_handlers);
