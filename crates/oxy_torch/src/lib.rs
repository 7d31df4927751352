//! torch's stable C ABI: raw symbols and safe tensors, dispatcher calls. Unsafe room.
