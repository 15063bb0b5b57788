//! Server reflection, with which tools such as grpcurl list the methods.

use std::sync::Arc;

use http::Response;
use hyper::body::Incoming;
use prost::Message as _;
use tidegate_codec::grpc::decode;
use tidegate_codec::grpc::proto::reflection::{
    ErrorResponse, ExtensionNumberResponse, FileDescriptorResponse, ListServiceResponse,
    MessageRequest, MessageResponse, ServerReflectionRequest, ServerReflectionResponse,
    ServiceResponse,
};
use tidegate_listen::Drain;

use super::body::GrpcBody;
use super::call::SERVICES;
use super::message::{self, Messages};
use super::status::{Code, Status};
use super::{schema, stream};
use crate::decider::Decider;
use crate::open_streams::OpenStream;

/// Answers a stream of requests.
pub(super) fn answer(
    decider: &Arc<Decider>,
    drain: &Drain,
    body: Incoming,
    open: Option<OpenStream>,
) -> Response<GrpcBody> {
    let (decider, drain) = (Arc::clone(decider), drain.clone());
    stream::reply(move |sender| async move {
        let _open = open;
        let mut questions = Messages::of(body, message::TINY, &decider.bodies.clients);
        loop {
            let question = tokio::select! {
                question = questions.next() => question,
                // An open stream would delay the shutdown.
                () = drain.begun() => return,
            };
            let asked = match question {
                Ok(Some(question)) => {
                    decode::<ServerReflectionRequest>(question).map_err(Status::from)
                }
                Ok(None) => return,
                Err(status) => Err(status),
            };
            match asked {
                Ok(asked) => {
                    if sender.send(&respond(asked)).await.is_err() {
                        return;
                    }
                }
                Err(status) => return sender.fail(status).await,
            }
        }
    })
}

fn respond(asked: ServerReflectionRequest) -> ServerReflectionResponse {
    let response = match &asked.message_request {
        Some(MessageRequest::ListServices(_)) => services(),
        Some(MessageRequest::FileByFilename(name)) => file(schema::by_name(name), name),
        Some(MessageRequest::FileContainingSymbol(symbol)) => {
            file(schema::by_symbol(symbol), symbol)
        }
        Some(MessageRequest::AllExtensionNumbersOfType(name)) => {
            MessageResponse::AllExtensionNumbersResponse(ExtensionNumberResponse {
                base_type_name: name.clone(),
                extension_number: Vec::new(),
            })
        }
        Some(MessageRequest::FileContainingExtension(_)) => {
            error(Code::NotFound, "there are no extensions".to_owned())
        }
        None => error(Code::InvalidArgument, "the request is empty".to_owned()),
    };
    ServerReflectionResponse {
        valid_host: asked.host.clone(),
        original_request: Some(asked),
        message_response: Some(response),
    }
}

fn services() -> MessageResponse {
    let service = |name: &str| ServiceResponse {
        name: name.to_owned(),
    };
    MessageResponse::ListServicesResponse(ListServiceResponse {
        service: SERVICES.into_iter().map(service).collect(),
    })
}

fn file(found: Option<&prost_types::FileDescriptorProto>, asked: &str) -> MessageResponse {
    match found {
        Some(file) => MessageResponse::FileDescriptorResponse(FileDescriptorResponse {
            file_descriptor_proto: vec![file.encode_to_vec()],
        }),
        None => error(Code::NotFound, format!("there is no `{asked}`")),
    }
}

fn error(code: Code, message: String) -> MessageResponse {
    MessageResponse::ErrorResponse(ErrorResponse {
        error_code: code as i32,
        error_message: message,
    })
}
