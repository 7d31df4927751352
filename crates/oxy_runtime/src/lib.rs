//! Plans: flat programs that allocate, launch, call and free; block cache and artifact cache.
