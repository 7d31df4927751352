//! The ABI against a real torch: tensors, views, operator calls by every route, errors, threads, modes.

mod common;

use common::{close, floats, ints, schema, torch, values};
use oxy_graph::{DType, Device, DeviceType, Layout, MemoryFormat, TensorMeta};
use oxy_torch::{
    CallSite, Error, KnownTensor, Results, Tensor, TensorRef, Value, call::RouteKind, call_dispatcher, verify_layout,
};
use std::{
    ptr::NonNull,
    sync::atomic::{AtomicI64, AtomicUsize, Ordering},
};

type Arg<'a> = Value<TensorRef<'a>>;

fn call(text: &str, args: &[Arg<'_>]) -> Results {
    call_dispatcher(torch(), &schema(text), args, &[]).expect(text)
}

fn first(results: &Results) -> TensorRef<'_> {
    results[0].as_ref().expect("a tensor").as_ref()
}

fn t(tensor: &Tensor) -> Arg<'_> {
    Value::Tensor(tensor.as_ref())
}

fn int_list<T>(values: &[i64]) -> Value<T> {
    Value::List(values.iter().map(|value| Value::Int(*value)).collect())
}

#[test]
fn tensors_tell_their_metadata() {
    let x = Tensor::empty_strided(torch(), &[2, 3], &[1, 2], DType::BF16, Device::CPU).unwrap();
    let x = x.as_ref();
    assert_eq!((x.rank(), x.numel(), x.sizes().as_slice(), x.strides().as_slice()), (2, 6, &[2, 3][..], &[1, 2][..]));
    assert_eq!((x.dtype(), x.device(), x.layout()), (Some(DType::BF16), Some(Device::CPU), Some(Layout::Strided)));
    assert_eq!((x.storage_offset(), x.storage_bytes(), x.is_contiguous(), x.is_cpu()), (0, 12, false, true));
    assert_eq!(
        (x.requires_grad(), x.is_conj(), x.is_neg(), x.is_inference()),
        (Some(false), Some(false), Some(false), Some(false))
    );
    assert!(
        x.is_defined() && !x.data_ptr().is_null() && x.has_layout(&[2, 3], &[1, 2]) && !x.has_layout(&[2, 3], &[3, 1])
    );
    x.set_requires_grad(true).unwrap();
    assert_eq!(x.requires_grad(), Some(true));
    assert_eq!(format!("{x:?}"), "Tensor(bf16[2, 3]{strides=[1, 2], grad})");
    let scalar = Tensor::empty_strided(torch(), &[], &[], DType::I64, Device::CPU).unwrap();
    assert_eq!((scalar.as_ref().rank(), scalar.as_ref().numel()), (0, 1));
}

#[test]
fn views_share_storage() {
    let x = floats(&[2, 3], &[0., 1., 2., 3., 4., 5.]);
    let view = x.as_ref().reinterpret(&[2, 2], &[3, 1], 1).unwrap();
    assert_eq!(values(view.as_ref()), [1., 2., 4., 5.]);
    let again = view.as_ref().reinterpret(&[2], &[3], 1).unwrap();
    assert_eq!((values(again.as_ref()), again.as_ref().storage_offset()), (vec![2., 5.], 2));
    assert_eq!(again.as_ref().is_view(), Some(false));
    let known = oxy_torch::as_strided(x.as_ref(), &[3], &[1], 3).unwrap();
    assert_eq!((values(known.as_ref()), known.as_ref().is_view()), (vec![3., 4., 5.], Some(true)));
    let bits = x.as_ref().view_dtype(DType::I32).unwrap();
    assert_eq!((bits.as_ref().dtype(), bits.as_ref().data_ptr()), (Some(DType::I32), x.as_ref().data_ptr()));
    drop(x);
    assert_eq!(values(view.as_ref()), [1., 2., 4., 5.]); // the storage lives on
    let copy = view.as_ref().clone_preserve_strides().unwrap();
    assert!(copy.as_ref().data_ptr() != view.as_ref().data_ptr());
    assert_eq!(values(copy.as_ref()), [1., 2., 4., 5.]);
}

#[test]
fn blobs_call_their_deleter_once() {
    static DELETED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn deleter(_data: *mut libc::c_void, context: *mut libc::c_void) {
        DELETED.fetch_add(context as usize, Ordering::SeqCst);
    }
    let mut memory = vec![1.0f32, 2.0, 3.0];
    let pointer = memory.as_mut_ptr().cast();
    let context = 7 as *mut libc::c_void;
    // SAFETY: `memory` outlives the tensors.
    let blob =
        unsafe { Tensor::from_blob(torch(), pointer, &[3], &[1], DType::F32, Some((deleter, context))) }.unwrap();
    assert_eq!(blob.as_ref().data_ptr().cast(), pointer);
    let view = blob.as_ref().reinterpret(&[2], &[1], 1).unwrap();
    drop(blob);
    assert_eq!(DELETED.load(Ordering::SeqCst), 0);
    assert_eq!(values(view.as_ref()), [2.0, 3.0]);
    std::thread::spawn(move || drop(view)).join().unwrap();
    assert_eq!(DELETED.load(Ordering::SeqCst), 7);
    assert_eq!(memory[2], 3.0);
}

#[test]
fn dispatcher_takes_every_kind_of_argument() {
    let x = floats(&[2, 3], &[0., 1., 2., 3., 4., 5.]);
    // int, optional dtype
    let none = Value::None;
    let results = call("softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", &[t(&x), Value::Int(1)]);
    close(&values(first(&results))[..3], &[0.090_030_57, 0.244_728_48, 0.665_240_94]);
    let text = "sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor";
    let dtype = [("dtype".to_owned(), Value::DType(DType::F64))];
    let results = call_dispatcher(torch(), &schema(text), &[t(&x), Value::Int(0), Value::Bool(true)], &dtype).unwrap();
    assert_eq!((first(&results).dtype(), first(&results).sizes().as_slice()), (Some(DType::F64), &[1, 3][..]));
    // optional list of ints, and its absence
    let text = "mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor";
    close(&values(first(&call(text, &[t(&x), int_list(&[0, 1])]))), &[2.5]);
    close(&values(first(&call(text, &[t(&x), int_list(&[-1])]))), &[1., 4.]);
    close(&values(first(&call(text, &[t(&x), none.clone()]))), &[2.5]);
    // list of ints, optional tensors, float
    let (weight, bias) = (floats(&[3], &[1., 2., 3.]), floats(&[3], &[0., 0., 1.]));
    let text = "layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, \
                float eps=1e-05, bool cudnn_enable=True) -> Tensor";
    let results = call(text, &[t(&x), int_list(&[3]), t(&weight), t(&bias)]);
    close(&values(first(&results)), &[-1.224_735_7, 0., 4.674_207, -1.224_735_7, 0., 4.674_207]);
    let results = call(text, &[t(&x), int_list(&[3]), none.clone(), none.clone(), Value::Float(0.5)]);
    close(&values(first(&results))[..2], &[-0.925_820_1, 0.]);
    // list of tensors
    let text = "cat(Tensor[] tensors, int dim=0) -> Tensor";
    let results = call(text, &[Value::List(vec![t(&x), t(&x)]), Value::Int(1)]);
    assert_eq!(first(&results).sizes().as_slice(), [2, 6]);
    // list of optional tensors
    let index = ints(&[2], &[2, 0]);
    let results = call(
        "index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
        &[t(&x), Value::List(vec![none.clone(), t(&index)])],
    );
    assert_eq!(values(first(&results)), [2., 0., 5., 3.]);
    // string
    let results = call("gelu(Tensor self, *, str approximate='none') -> Tensor", &[t(&x)]);
    close(&values(first(&results))[..2], &[0., 0.841_344_8]);
    let kind = [("approximate".to_owned(), Value::Str("tanh".into()))];
    let text = "gelu(Tensor self, *, str approximate='none') -> Tensor";
    close(&values(first(&call_dispatcher(torch(), &schema(text), &[t(&x)], &kind).unwrap()))[1..2], &[0.841_192]);
    // layout, device, dtype, memory format
    let text = "empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, \
                bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor";
    let named = |name: &str, value: Arg<'static>| (name.to_owned(), value);
    let kwargs = [
        named("dtype", Value::DType(DType::F16)),
        named("layout", Value::Layout(Layout::Strided)),
        named("device", Value::Device(Device::CPU)),
        named("pin_memory", Value::Bool(false)),
        named("memory_format", Value::MemoryFormat(MemoryFormat::ChannelsLast)),
    ];
    let results = call_dispatcher(torch(), &schema(text), &[int_list(&[1, 2, 3, 4])], &kwargs).unwrap();
    assert_eq!((first(&results).dtype(), first(&results).strides().as_slice()), (Some(DType::F16), &[24, 1, 8, 2][..]));
    let meta = [named("device", Value::Device(Device { kind: DeviceType::Meta, index: -1 }))];
    let results = call_dispatcher(torch(), &schema(text), &[int_list(&[2])], &meta).unwrap();
    assert_eq!(first(&results).device().map(|device| device.kind), Some(DeviceType::Meta));
    // list of floats
    let image = floats(&[1, 1, 2, 2], &[0., 1., 2., 3.]);
    let text = "upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor";
    let scales = Value::List(vec![Value::Float(2.0), Value::Float(1.0)]);
    assert_eq!(values(first(&call(text, &[t(&image), none.clone(), scales]))), [0., 1., 0., 1., 2., 3., 2., 3.]);
}

#[test]
fn dispatcher_gives_every_kind_of_result() {
    let x = floats(&[2, 3], &[0., 5., 2., 3., 4., 1.]);
    let text = "max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)";
    let results = call(text, &[t(&x), Value::Int(1)]);
    assert_eq!(results.len(), 2);
    assert_eq!(values(first(&results)), [5., 4.]);
    assert_eq!(results[1].as_ref().unwrap().as_ref().dtype(), Some(DType::I64));
    let text = "split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]";
    let results = call(text, &[t(&x), Value::Int(2), Value::Int(1)]);
    assert_eq!((results.len(), values(results[1].as_ref().unwrap().as_ref())), (2, vec![2., 1.]));
    // an undefined tensor and numbers are no results
    let text = "native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, \
                Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, Tensor)";
    let stats = floats(&[2, 1], &[1., 1.]);
    let mask = Value::List(vec![Value::Bool(true), Value::Bool(false), Value::Bool(false)]);
    let results = call(text, &[t(&x), t(&x), int_list(&[3]), t(&stats), t(&stats), Value::None, Value::None, mask]);
    assert_eq!(results.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false]);
    let results = call("sym_size.int(Tensor self, int dim) -> SymInt", &[t(&x), Value::Int(1)]);
    assert_eq!(results.len(), 1);
    assert!(results[0].is_none());
    // in place
    let results = call("relu_(Tensor(a!) self) -> Tensor(a!)", &[t(&x)]);
    assert_eq!(first(&results).data_ptr(), x.as_ref().data_ptr());
}

#[test]
fn what_the_abi_lacks_is_refused_before_the_call() {
    let x = floats(&[2], &[1., 2.]);
    let refuse = |text: &str, args: &[Arg<'_>]| match call_dispatcher(torch(), &schema(text), args, &[]) {
        Err(Error::Unsupported { op, what }) => format!("{op}: {what}"),
        other => panic!("{other:?}"),
    };
    let text = refuse("add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", &[t(&x), t(&x)]);
    assert!(text.contains("aten.add.Tensor") && text.contains("`alpha`"), "{text}");
    refuse("clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", &[t(&x), Value::Int(1)]);
    refuse("mul.Tensor(Tensor self, Tensor other) -> Tensor", &[t(&x), Value::Int(1)]);
    refuse("_local_scalar_dense(Tensor self) -> Scalar", &[t(&x)]);
    refuse("relu(Tensor self) -> Tensor", &[]);
    refuse("relu(Tensor self) -> Tensor", &[t(&x), t(&x)]);
    // but an absent Scalar is fine
    call("clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor", &[t(&x), t(&x)]);
    let text =
        "std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor";
    close(&values(first(&call(text, &[t(&x)]))), &[std::f32::consts::FRAC_1_SQRT_2]);
}

#[test]
fn the_abi_really_lacks_scalars() {
    // If a later torch takes them, `encode` should pass them.
    let x = floats(&[2], &[1., 2.]);
    let text = "leaky_relu(Tensor self, float negative_slope=0.01) -> Tensor"; // a lie: it is a Scalar
    match call_dispatcher(torch(), &schema(text), &[t(&x)], &[]) {
        Err(Error::Operator { message, .. }) => {
            assert!(message.is_none_or(|text| text.contains("Not yet supported conversion")));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn errors_are_torchs() {
    let (x, y) = (floats(&[2, 3], &[0.; 6]), floats(&[4, 2], &[0.; 8]));
    let text = "matmul(Tensor self, Tensor other) -> Tensor";
    let error = call_dispatcher(torch(), &schema(text), &[t(&x), t(&y)], &[]).unwrap_err();
    let Error::Operator { op, message } = &error else { panic!("{error:?}") };
    assert_eq!(op, "aten.matmul.default");
    if torch().version() >= (2, 13) {
        let text = message.as_deref().unwrap();
        assert!(text.ends_with("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x2)"), "{text}");
        assert_eq!(error.to_string(), text);
    }
    let metas = [TensorMeta::contiguous(DType::F32, &[2, 3]), TensorMeta::contiguous(DType::F32, &[4, 2])];
    let args = [Value::Tensor(0), Value::Tensor(1)];
    let site =
        CallSite::into_out(torch(), &schema("mm(Tensor self, Tensor mat2) -> Tensor"), &args, &[], &metas, 0).unwrap();
    let error = site.call(&[x.as_ref(), y.as_ref()]).unwrap_err();
    assert!(matches!(&error, Error::Operator { op, .. } if op == "aten.mm.default"), "{error:?}");
    assert!(call_dispatcher(torch(), &schema("no_such_operator(Tensor self) -> Tensor"), &[t(&x)], &[]).is_err());
}

/// Builds the quickest call and makes it.
fn direct(text: &str, args: &[Value<u32>], tensors: &[&Tensor]) -> (RouteKind, Results) {
    let metas: Vec<TensorMeta> = tensors.iter().map(|tensor| tensor.as_ref().meta().expect("metadata")).collect();
    let site = CallSite::direct(torch(), &schema(text), args, &[], &metas).expect(text);
    let tensors: Vec<TensorRef<'_>> = tensors.iter().map(|tensor| tensor.as_ref()).collect();
    (site.route(), site.call(&tensors).expect(text))
}

#[test]
fn shims_equal_the_dispatcher() {
    let convolution = "convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, \
                       SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor";
    let attention = "_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float \
                     dropout_p=0.0, bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor \
                     output, Tensor logsumexp)";
    let data: Vec<f32> = (0..64).map(|i| (i as f32 * 0.7).sin()).collect();
    let image = floats(&[1, 2, 4, 4], &data[..32]);
    let (weight, bias) = (floats(&[3, 2, 2, 2], &data[..24]), floats(&[3], &data[..3]));
    let heads = floats(&[1, 2, 4, 8], &data);
    let mask = floats(&[4, 4], &data[16..32]);
    let (index, vector) = (ints(&[2], &[3, 1]), floats(&[8], &data[..8]));
    let (v, i) = (Value::Tensor, Value::Int);
    type Case<'a> = (&'a str, Vec<Value<u32>>, Vec<&'a Tensor>);
    let cases: Vec<Case<'_>> = vec![
        (
            convolution,
            vec![
                v(0),
                v(1),
                v(2),
                int_list(&[1, 2]),
                int_list(&[1, 0]),
                int_list(&[1, 1]),
                Value::Bool(false),
                int_list(&[0, 0]),
                i(1),
            ],
            vec![&image, &weight, &bias],
        ),
        (
            convolution,
            vec![
                v(0),
                v(1),
                Value::None,
                int_list(&[1, 1]),
                int_list(&[0, 0]),
                int_list(&[1, 1]),
                Value::Bool(false),
                int_list(&[0, 0]),
                i(1),
            ],
            vec![&image, &weight],
        ),
        (attention, vec![v(0), v(0), v(0), Value::Float(0.0), Value::Bool(true)], vec![&heads]),
        (
            "max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] \
             dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
            vec![v(0), int_list(&[2, 2]), int_list(&[1, 1])],
            vec![&image],
        ),
        (
            "avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, \
             bool count_include_pad=True, int? divisor_override=None) -> Tensor",
            vec![v(0), i(2), int_list(&[2, 2]), i(1), Value::Bool(false), Value::Bool(true), i(3)],
            vec![&image],
        ),
        (
            "_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor",
            vec![v(0), int_list(&[1, 3])],
            vec![&image],
        ),
        (
            "cat(Tensor[] tensors, int dim=0) -> Tensor",
            vec![Value::List(vec![v(0), v(1), v(0)]), i(-1)],
            vec![&image, &image],
        ),
        (
            "index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
            vec![v(0), Value::List(vec![Value::None, Value::None, v(1)])],
            vec![&image, &index],
        ),
        ("cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", vec![v(0), i(2)], vec![&image]),
        (
            "topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)",
            vec![v(0), i(2)],
            vec![&image],
        ),
        (
            "sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
            vec![v(0)],
            vec![&image],
        ),
        ("mul.Tensor(Tensor self, Tensor other) -> Tensor", vec![v(0), v(1)], vec![&heads, &vector]),
    ];
    for (text, args, tensors) in &cases {
        let (route, results) = direct(text, args, tensors);
        assert_eq!(route, RouteKind::Shim, "{text}");
        let args: Vec<Arg<'_>> = args.iter().map(|arg| arg.map(&mut |slot| tensors[*slot as usize].as_ref())).collect();
        let expected = call(text, &args);
        assert_eq!(values(first(&results)), values(first(&expected)), "{text}");
        assert_eq!(results.len(), expected.len());
    }
    // keyword-only optional arguments: a mask and a scale
    let metas = [heads.as_ref().meta().unwrap(), mask.as_ref().meta().unwrap()];
    let kwargs = [("attn_mask".to_owned(), v(1)), ("scale".to_owned(), Value::Float(0.25))];
    let site = CallSite::direct(torch(), &schema(attention), &[v(0), v(0), v(0)], &kwargs, &metas).unwrap();
    assert_eq!(site.route(), RouteKind::Shim);
    let tensors = [heads.as_ref(), mask.as_ref()];
    let site_boxed = CallSite::dispatched(torch(), &schema(attention), &[v(0), v(0), v(0)], &kwargs).unwrap();
    assert_eq!(values(first(&site.call(&tensors).unwrap())), values(first(&site_boxed.call(&tensors).unwrap())));
}

#[test]
fn shims_write_into_given_tensors() {
    let (bias, a, b) = (
        floats(&[2], &[10., 20.]),
        floats(&[2, 3], &[1., 2., 3., 4., 5., 6.]),
        floats(&[3, 2], &[1., 0., 0., 1., 1., 1.]),
    );
    let out = floats(&[2, 2], &[f32::NAN; 4]);
    let metas: Vec<TensorMeta> = [&bias, &a, &b, &out].iter().map(|x| x.as_ref().meta().unwrap()).collect();
    let text = "addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor";
    let args = [Value::Tensor(0), Value::Tensor(1), Value::Tensor(2)];
    let site = CallSite::into_out(torch(), &schema(text), &args, &[], &metas, 3).unwrap();
    assert_eq!(site.route(), RouteKind::ShimOut);
    let results = site.call(&[bias.as_ref(), a.as_ref(), b.as_ref(), out.as_ref()]).unwrap();
    assert!(results.is_empty());
    assert_eq!(values(out.as_ref()), [14., 25., 20., 31.]);
    let alpha = [("alpha".to_owned(), Value::Float(0.5)), ("beta".to_owned(), Value::Int(0))];
    let site = CallSite::into_out(torch(), &schema(text), &args, &alpha, &metas, 3).unwrap();
    site.call(&[bias.as_ref(), a.as_ref(), b.as_ref(), out.as_ref()]).unwrap();
    assert_eq!(values(out.as_ref()), [2., 2.5, 5., 5.5]);
    // an int Scalar with an int tensor would lose its type
    let int_metas = vec![TensorMeta::contiguous(DType::I64, &[2, 2]); 4];
    assert!(CallSite::into_out(torch(), &schema(text), &args, &[], &int_metas, 3).is_none());
    // another schema than the row knows
    assert!(
        CallSite::into_out(
            torch(),
            &schema("mm(Tensor self, Tensor mat2, int n) -> Tensor"),
            &[Value::Tensor(0), Value::Tensor(1), Value::Int(1)],
            &[],
            &metas,
            3
        )
        .is_none()
    );
}

#[test]
fn parallel_for_covers_the_range_once() {
    let torch = torch();
    assert!(torch.num_threads() >= 1);
    let (sum, parts) = (AtomicI64::new(0), AtomicUsize::new(0));
    torch
        .parallel_for(3, 100_003, 1000, &|lo, hi| {
            sum.fetch_add((lo..hi).sum::<i64>(), Ordering::Relaxed);
            parts.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    assert_eq!(sum.into_inner(), (3..100_003).sum::<i64>());
    assert!(parts.into_inner() <= torch.num_threads());
    let panicked = std::panic::catch_unwind(|| torch.parallel_for(0, 10, 1, &|_, _| panic!("inside")));
    assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"inside"));
    torch.parallel_for(5, 5, 1, &|_, _| panic!("no items")).unwrap();
}

#[test]
fn modes_are_restored() {
    let torch = torch();
    assert!(torch.is_grad_enabled());
    {
        let _outer = torch.no_grad();
        assert!(!torch.is_grad_enabled());
        drop(torch.no_grad());
        assert!(!torch.is_grad_enabled());
    }
    assert!(torch.is_grad_enabled());
    assert_eq!(torch.is_inference_mode_enabled(), Some(false));
    assert_eq!(torch.is_autocast_enabled(DeviceType::Cpu), Some(false));
    drop(torch.no_autocast(DeviceType::Cpu));
    assert_eq!(torch.is_autocast_enabled(DeviceType::Meta), Some(false));
}

#[test]
fn versions_are_bumped() {
    let x = floats(&[2], &[1., 2.]);
    let text = "_version(Tensor self) -> int";
    assert!(call_dispatcher(torch(), &schema(text), &[t(&x)], &[]).is_ok());
    x.as_ref().bump_version().unwrap();
}

#[test]
fn the_layout_of_python_tensors_is_verified() {
    // What a Python tensor looks like: a 16-byte header, then the at::Tensor.
    #[repr(C)]
    struct Object {
        header: [usize; 2],
        tensor: usize,
        more: [usize; 4],
    }
    let x = floats(&[2, 3], &[0.; 6]);
    // SAFETY: a handle points to an at::Tensor, which is one pointer.
    let tensor_impl = unsafe { *x.as_ref().as_raw().cast::<usize>() };
    let mut object = Object { header: [1, 2], tensor: tensor_impl, more: [0; 4] };
    let known = |object: &mut Object, sizes: &'static [i64], data_ptr| KnownTensor {
        object: NonNull::from(object).cast(),
        dtype: DType::F32,
        sizes,
        strides: &[3, 1],
        data_ptr,
    };
    let data = x.as_ref().data_ptr() as usize;
    let verify = |known: KnownTensor<'_>| {
        // SAFETY: the object looks like a tensor for as long as the call takes.
        unsafe { verify_layout(torch(), &known) }
    };
    verify(known(&mut object, &[2, 3], data)).unwrap();
    let refused = |result: Result<(), Error>| assert!(matches!(result, Err(Error::Layout(_))), "{result:?}");
    refused(verify(known(&mut object, &[3, 2], data)));
    refused(verify(known(&mut object, &[2, 3], data + 4)));
    for wrong in [0, 3, 64, data, &raw const x as usize] {
        object.tensor = wrong;
        refused(verify(known(&mut object, &[2, 3], data)));
    }
}

#[test]
fn tensors_are_shared_between_threads() {
    let x = floats(&[4], &[1., 2., 3., 4.]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let copy = x.as_ref().to_tensor().unwrap();
                    assert_eq!(values(copy.as_ref()), [1., 2., 3., 4.]);
                }
            });
        }
    });
}
