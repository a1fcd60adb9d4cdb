//! Keys of PyTorch that mean nothing here.

/// Why a key of PyTorch means nothing here; `None` if PyTorch has no such key.
pub(super) fn reason(key: &str) -> Option<&'static str> {
    Some(match key {
        "backend" => "there is one backend",
        "large_segment_size_mb" => "segments do not come in classes of fixed sizes",
        "release_lock_on_cudamalloc" | "release_lock_on_hipmalloc" => {
            "which locks are held in a driver call is no choice"
        }
        "graph_capture_record_stream_reuse" => {
            "blocks are always reused in captures; `reuse` says by which streams"
        }
        "throw_on_cudamalloc_oom" => "what is tried before a request fails is no choice",
        "expandable_segments_reserve" | "expandable_segments_reserve_by_class" => {
            "how many addresses a segment reserves is no choice"
        }
        _ if key.starts_with("pinned_") || key.starts_with("pin_memory_") => {
            "only device memory is managed, never pinned host memory"
        }
        _ => return None,
    })
}
