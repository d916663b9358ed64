//! What a connection says: the wording in its own language, and positions as plain numbers.

use bongsu_inbox::{Templates, told};
use bongsu_kernel::text::Language;
use bytes::Bytes;

/// What comes before the end of a stream that a newer one replaced.
const REPLACED: &str = "event: replaced\ndata: {}\n\n";

pub(crate) fn dress(templates: &Templates, language: Language, frames: &[u8]) -> Bytes {
    let text = std::str::from_utf8(frames).unwrap_or_default();
    let mut out = String::with_capacity(text.len() + 256);
    for frame in text.split_terminator("\n\n") {
        let is_entry = frame.lines().any(|line| line.strip_prefix("event: ") == Some(told::EVENT));
        if frame.contains("\nid: end.3500.") {
            out.push_str(REPLACED);
        }
        for line in frame.lines() {
            if let Some(id) = line.strip_prefix("id: ") {
                // `17-0` among the hub's own, and `0-1` before the first; the second half says nothing here.
                out.push_str("id: ");
                out.push_str(id.rsplit_once('-').map_or(id, |(number, _)| number));
            } else if let (true, Some(data)) = (is_entry, line.strip_prefix("data: ")) {
                out.push_str("data: ");
                out.push_str(told::said(data, templates, language).as_deref().unwrap_or(data));
            } else {
                out.push_str(line);
            }
            out.push('\n');
        }
        out.push('\n');
    }
    out.into()
}
