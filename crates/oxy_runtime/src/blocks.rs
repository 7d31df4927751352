//! The block cache: memory for results and arenas, kept for reuse up to a bound.
//!
//! A fresh page costs more than most kernels that fill it, so memory that a dropped tensor returns is kept and handed
//! out again. Blocks come in size classes an eighth apart; each class gives out its most recently returned block. What
//! is kept never exceeds the bound: the longest unused blocks go first.

use parking_lot::Mutex;
use std::{collections::BTreeMap, mem::MaybeUninit, sync::Arc};

/// One cache line; blocks are aligned to it.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([MaybeUninit<u8>; 64]);

/// Memory from the cache. Dropped instead of given back, it is simply freed.
pub struct Block {
    /// Only its capacity is used.
    lines: Vec<Line>,
    bytes: u64,
}

impl Block {
    pub fn as_ptr(&mut self) -> *mut u8 {
        self.lines.as_mut_ptr().cast()
    }

    /// Usable bytes: the size class.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A block that goes back to its cache when dropped, in any thread.
pub struct Lease {
    // Invariant: present until dropped.
    block: Option<Block>,
    memory: Arc<BlockCache>,
}

impl Lease {
    /// At least this many bytes; contents undefined. None when the system has no memory.
    pub fn take(memory: &Arc<BlockCache>, bytes: u64) -> Option<Lease> {
        Some(Lease { block: Some(memory.take(bytes)?), memory: memory.clone() })
    }

    pub fn as_ptr(&mut self) -> *mut u8 {
        self.block.as_mut().map_or(std::ptr::null_mut(), Block::as_ptr)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.memory.give(block);
        }
    }
}

/// Counters of a block cache, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Kept for reuse.
    pub held: u64,
    /// Handed out.
    pub in_use: u64,
    /// The largest `held + in_use` so far.
    pub peak: u64,
    pub hits: u64,
    pub misses: u64,
}

pub struct BlockCache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bound: u64,
    /// By class size; each a stack, most recently returned last, with the time of its return.
    classes: BTreeMap<u64, Vec<(u64, Block)>>,
    clock: u64,
    stats: MemoryStats,
}

impl BlockCache {
    /// A cache that keeps up to `bound` bytes.
    pub fn new(bound: u64) -> BlockCache {
        BlockCache { state: Mutex::new(State { bound, ..State::default() }) }
    }

    /// A sixteenth of the machine's memory, and at least 256 MiB.
    pub fn default_bound() -> u64 {
        let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
        (memory.unwrap_or(0) * 1024 / 16).max(256 << 20)
    }

    /// A block of at least this many bytes; contents undefined. None when the system has no memory.
    pub fn take(&self, bytes: u64) -> Option<Block> {
        let class = size_class(bytes);
        let mut state = self.state.lock();
        let kept = state.classes.get_mut(&class).and_then(Vec::pop);
        if kept.is_some() {
            state.stats.held -= class;
            state.stats.hits += 1;
        } else {
            state.stats.misses += 1;
        }
        state.stats.in_use += class;
        state.stats.peak = state.stats.peak.max(state.stats.held + state.stats.in_use);
        if let Some((_, block)) = kept {
            return Some(block);
        }
        drop(state); // allocating may be slow
        let mut lines = Vec::new();
        if lines.try_reserve_exact(class as usize / size_of::<Line>()).is_err() {
            self.state.lock().stats.in_use -= class;
            return None;
        }
        let mut block = Block { lines, bytes: class };
        crate::launch::prefer_large_pages(block.as_ptr(), class);
        Some(block)
    }

    /// Returns a block, from any thread.
    pub fn give(&self, block: Block) {
        let class = block.bytes;
        let mut state = self.state.lock();
        state.stats.in_use -= class;
        state.clock += 1;
        let now = state.clock;
        state.stats.held += class;
        state.classes.entry(class).or_default().push((now, block));
        let bound = state.bound;
        let evicted = state.shrink(bound);
        drop(state); // freeing may be slow
        drop(evicted);
    }

    /// Frees everything that is kept.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.stats.held = 0;
        let evicted = std::mem::take(&mut state.classes);
        drop(state);
        drop(evicted);
    }

    /// Changes the bound, freeing what is above it.
    pub fn set_bound(&self, bound: u64) {
        let mut state = self.state.lock();
        state.bound = bound;
        let evicted = state.shrink(bound);
        drop(state);
        drop(evicted);
    }

    pub fn stats(&self) -> MemoryStats {
        self.state.lock().stats
    }
}

impl State {
    /// Takes the longest unused blocks out until no more than `bound` bytes are kept.
    fn shrink(&mut self, bound: u64) -> Vec<Block> {
        let mut evicted = Vec::new();
        while self.stats.held > bound {
            // Each stack's bottom is its oldest block.
            let oldest = self.classes.iter().filter_map(|(class, stack)| Some((stack.first()?.0, *class))).min();
            let Some((_, class)) = oldest else { break };
            let Some(stack) = self.classes.get_mut(&class) else { break };
            evicted.push(stack.remove(0).1);
            if stack.is_empty() {
                self.classes.remove(&class);
            }
            self.stats.held -= class;
        }
        evicted
    }
}

/// Sizes an eighth of a power of two apart, at least 4 KiB: at most 12.5 % is wasted.
fn size_class(bytes: u64) -> u64 {
    let bytes = bytes.max(4096);
    let step = (bytes.next_power_of_two() / 16).max(512);
    bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_close_and_aligned() {
        for bytes in [0, 1, 4096, 4097, 5000, 65536, 65537, 1_000_000, (1 << 30) + 1] {
            let class = size_class(bytes);
            assert!(class >= bytes && class.is_multiple_of(512), "{bytes} {class}");
            assert!(bytes < 4096 || class as f64 <= bytes as f64 * 1.1251, "{bytes} {class}");
            assert_eq!(size_class(class), class);
        }
    }

    #[test]
    fn reuses_the_last_block_and_keeps_the_bound() {
        let cache = BlockCache::new(3 << 20);
        let mut a = cache.take(1 << 20).unwrap();
        let address = a.as_ptr();
        assert_eq!(address as usize % 64, 0);
        cache.give(a);
        let mut b = cache.take((1 << 20) - 100).unwrap();
        assert_eq!(b.as_ptr(), address);
        let blocks: Vec<Block> = (0..5).map(|_| cache.take(1 << 20).unwrap()).collect();
        blocks.into_iter().for_each(|block| cache.give(block));
        assert_eq!(cache.stats().held, 3 << 20);
        cache.give(b); // the newest stays, an old one goes
        assert_eq!(cache.stats().held, 3 << 20);
        assert_eq!(cache.take(1 << 20).unwrap().as_ptr(), address);
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.in_use), (2, 6, 1 << 20));
        assert!(stats.peak >= 6 << 20);
        cache.set_bound(1 << 20);
        assert_eq!(cache.stats().held, 1 << 20);
        cache.clear();
        assert_eq!(cache.stats().held, 0);
    }

    #[test]
    fn blocks_larger_than_the_bound_are_not_kept() {
        let cache = BlockCache::new(1 << 20);
        let small = cache.take(1 << 19).unwrap();
        let large = cache.take(4 << 20).unwrap();
        cache.give(small);
        cache.give(large);
        assert!(cache.stats().held <= 1 << 20);
        assert_eq!(cache.stats().in_use, 0);
    }

    #[test]
    fn threads_share_it() {
        let cache = Arc::new(BlockCache::new(1 << 22));
        let threads: Vec<_> = (0..4)
            .map(|t: u64| {
                let cache = cache.clone();
                std::thread::spawn(move || {
                    for i in 0..500 {
                        let block = cache.take(4096 * (1 + (i * 7 + t) % 50)).unwrap();
                        cache.give(block);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let stats = cache.stats();
        assert_eq!((stats.in_use, stats.hits + stats.misses), (0, 2000));
        assert!(stats.held <= 1 << 22);
    }
}
