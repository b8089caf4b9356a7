//! Readers: any supported file, as a stream or as a whole.

mod edn;
mod history;
mod lines;
mod order;
mod source;
mod stream;
mod text;

pub use history::{History, read_bytes, read_path};
pub use order::Record;
pub use stream::Reader;
