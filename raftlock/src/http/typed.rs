//! Around every answer: what the framework refuses by itself (a path that is no UTF-8, a body too long, a method that is none of
//! the path's) gets the words of every other error, and who is sent to the leader is told where the same path is there.

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::ApiError;
use super::error::Leader;

/// Longest text of the framework.
const TEXT_LIMIT: usize = 4096;

/// Answers a request.
pub(super) async fn around(request: Request, next: Next) -> Response {
    let uri = request.uri().clone();
    let mut response = typed(next.run(request).await).await;
    let leader = response.extensions_mut().remove::<Leader>();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    if let Some(Leader(base)) = leader
        && let Ok(place) = HeaderValue::from_str(&format!("{base}{path}"))
    {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

/// Gives a refusal without a type one.
async fn typed(response: Response) -> Response {
    let status = response.status();
    let json = |value: &header::HeaderValue| value.as_bytes().starts_with(b"application/json");
    let ours = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(json);
    if !status.is_client_error() || ours {
        return response;
    }
    let (code, own) = match status {
        StatusCode::METHOD_NOT_ALLOWED => ("method_not_allowed", "this path has other methods"),
        StatusCode::PAYLOAD_TOO_LARGE => ("too_large", "the body is longer than 64 KiB"),
        _ => ("bad_request", "the request is malformed"),
    };
    let (parts, body) = response.into_parts();
    let text = to_bytes(body, TEXT_LIMIT).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let message = if text.is_empty() { own } else { &text };
    let mut typed = ApiError::new(status, code, message).into_response();
    if let Some(allow) = parts.headers.get(header::ALLOW) {
        typed.headers_mut().insert(header::ALLOW, allow.clone());
    }
    typed
}
