//! The families. A row's schema is torch's own text.

use crate::OpDef;

pub mod activation;
pub mod casts;
pub mod comparison;
pub mod creation;
pub mod indexing;
pub mod norms;
pub mod pointwise_binary;
pub mod pointwise_ternary;
pub mod pointwise_unary;
pub mod reductions;
pub mod shape;
pub mod softmax;
pub mod views;

pub const FAMILIES: &[&[OpDef]] = &[
    activation::OPS,
    casts::OPS,
    comparison::OPS,
    creation::OPS,
    indexing::OPS,
    norms::OPS,
    pointwise_binary::OPS,
    pointwise_ternary::OPS,
    pointwise_unary::OPS,
    reductions::OPS,
    shape::OPS,
    softmax::OPS,
    views::OPS,
];
