//! Element types, with torch's names and codes.

/// An element type. The discriminant is c10::ScalarType's value (torch/headeronly/core/ScalarType.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    U8 = 0,
    I8 = 1,
    I16 = 2,
    I32 = 3,
    I64 = 4,
    F16 = 5,
    F32 = 6,
    F64 = 7,
    C32 = 8,
    C64 = 9,
    C128 = 10,
    Bool = 11,
    BF16 = 15,
    F8E5M2 = 23,
    F8E4M3FN = 24,
    U16 = 27,
    U32 = 28,
    U64 = 29,
}

/// (dtype, our short name, torch's attribute name, bytes per element), in code order.
const TABLE: &[(DType, &str, &str, usize)] = &[
    (DType::U8, "u8", "uint8", 1),
    (DType::I8, "i8", "int8", 1),
    (DType::I16, "i16", "int16", 2),
    (DType::I32, "i32", "int32", 4),
    (DType::I64, "i64", "int64", 8),
    (DType::F16, "f16", "float16", 2),
    (DType::F32, "f32", "float32", 4),
    (DType::F64, "f64", "float64", 8),
    (DType::C32, "c32", "complex32", 4),
    (DType::C64, "c64", "complex64", 8),
    (DType::C128, "c128", "complex128", 16),
    (DType::Bool, "bool", "bool", 1),
    (DType::BF16, "bf16", "bfloat16", 2),
    (DType::F8E5M2, "f8e5m2", "float8_e5m2", 1),
    (DType::F8E4M3FN, "f8e4m3fn", "float8_e4m3fn", 1),
    (DType::U16, "u16", "uint16", 2),
    (DType::U32, "u32", "uint32", 4),
    (DType::U64, "u64", "uint64", 8),
];

impl DType {
    fn row(self) -> &'static (DType, &'static str, &'static str, usize) {
        TABLE.iter().find(|row| row.0 == self).unwrap_or(&TABLE[0])
    }

    /// Short name used in text forms, e.g. `f32`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Name of the attribute of the `torch` module, e.g. `float32`.
    pub fn torch_name(self) -> &'static str {
        self.row().2
    }

    /// Bytes per element.
    pub fn itemsize(self) -> usize {
        self.row().3
    }

    /// The dtype with this short name.
    pub fn from_name(name: &str) -> Option<DType> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// The dtype with this `torch` attribute name (without the `torch.` prefix).
    pub fn from_torch_name(name: &str) -> Option<DType> {
        TABLE.iter().find(|row| row.2 == name).map(|row| row.0)
    }

    /// The dtype with this c10::ScalarType code.
    pub fn from_code(code: i32) -> Option<DType> {
        TABLE.iter().find(|row| row.0 as i32 == code).map(|row| row.0)
    }

    pub fn is_floating_point(self) -> bool {
        matches!(self, DType::F16 | DType::F32 | DType::F64 | DType::BF16 | DType::F8E5M2 | DType::F8E4M3FN)
    }

    pub fn is_complex(self) -> bool {
        matches!(self, DType::C32 | DType::C64 | DType::C128)
    }

    pub fn is_bool(self) -> bool {
        self == DType::Bool
    }

    /// Integer types, bool not included.
    pub fn is_integral(self) -> bool {
        !self.is_floating_point() && !self.is_complex() && !self.is_bool()
    }

    pub fn is_signed(self) -> bool {
        !matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool)
    }
}
