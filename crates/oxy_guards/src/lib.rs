//! Sources, guard kinds and guard programs evaluated on real Python objects.
