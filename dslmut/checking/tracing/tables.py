"""Which functions of torch, Python and NumPy do what in a body, by name."""

from __future__ import annotations

from dslmut.checking import knowledge as kn

VIEWS = frozenset(
    "T mT H mH data view view_as transpose swapaxes swapdims t permute movedim moveaxis squeeze "
    "unsqueeze unflatten expand expand_as broadcast_to narrow select diagonal unfold detach".split()
)
"""Attributes, methods and functions whose result certainly shares the tensor's memory."""

ZERO_KEEPING = frozenset(
    "T mT H mH data view view_as reshape reshape_as transpose swapaxes swapdims t adjoint permute "
    "movedim moveaxis squeeze unsqueeze flatten unflatten ravel expand expand_as broadcast_to "
    "contiguous clone detach to type type_as float double half bfloat16 cfloat cdouble chalf int "
    "long short char bool byte cpu cuda atleast_1d atleast_2d atleast_3d positive".split()
)
"""Those that make a zero constant of a zero constant, and perhaps give the tensor itself."""

ZEROS = frozenset("zeros zeros_like new_zeros".split())
"""Functions that make a zero constant."""

FILLED = {"full": 1, "full_like": 1, "new_full": 1}
"""Those that make one if they are given zero, and where: at this place, the receiver not counted."""

MADE = frozenset(
    "ones ones_like new_ones empty empty_like new_empty empty_strided new_empty_strided eye arange "
    "linspace logspace tensor as_tensor new_tensor scalar_tensor complex polar from_numpy".split()
)
"""Functions that make another tensor, whatever they are given."""

MANY = frozenset(
    "svd qr eig eigh slogdet frexp aminmax var_mean std_mean unique unique_consecutive geqrf lu "
    "lu_factor histogram histogramdd topk sort kthvalue mode cummax cummin lstsq broadcast_tensors "
    "meshgrid nonzero where_indices triangular_solve cholesky_ex inv_ex ldl_factor split chunk "
    "tensor_split hsplit vsplit dsplit unbind split_with_sizes unsafe_chunk unsafe_split "
    "nanmedian median align_tensors".split()
)
"""Functions that give several tensors, or may do."""

REDUCING = frozenset({"max", "min"})
"""Functions that give one tensor alone, and two along a dimension."""

NUMBERS = kn.TENSOR_NUMBERS | frozenset(
    "is_tensor is_conj is_neg is_inference is_same_size is_signed is_storage sym_int".split()
)
"""Attributes, methods and functions that give a constant of the trace."""

BRANCHING = frozenset("equal allclose is_nonzero __contains__ __bool__".split())
"""Functions and methods that ask for the truth of tensors."""

READING = frozenset("item tolist __float__ __int__ __index__ __complex__ __format__".split())
"""Methods that ask for a number."""

ARRAYS = frozenset({"numpy", "__array__"})
"""Methods that give an array of NumPy."""

ABSENT = frozenset("data_ptr storage_offset untyped_storage storage register_hook".split())
"""Methods about what only the parameter itself has."""

ABSENT_ATTRIBUTES = frozenset("requires_grad is_leaf grad_fn _version _base retains_grad".split())
"""Attributes of that kind."""

WRITING = frozenset("requires_grad_ apply_ map_ map2_ share_memory_ backward".split())
"""Methods that change a tensor in a way that no graph can hold."""

SHAPED = frozenset("nonzero masked_select unique unique_consecutive argwhere".split())
"""Functions and methods whose result has a shape that depends on values."""

RANDOM = frozenset(
    "rand randn randint rand_like randn_like randint_like randperm normal bernoulli multinomial "
    "poisson binomial normal_ uniform_ bernoulli_ exponential_ cauchy_ geometric_ log_normal_ "
    "random_ manual_seed seed set_rng_state".split()
)
"""Functions and methods of torch that draw from the global generator, or seed it."""

DROPPING = {
    "dropout": 2, "alpha_dropout": 2, "feature_alpha_dropout": 2, "dropout1d": 2, "dropout2d": 2,
    "dropout3d": 2,
}  # fmt: skip
"""Those that draw unless they are told, at this place, that this is no training."""

RANDOM_MODULES = {
    "random": frozenset(
        "random uniform randint randrange gauss normalvariate choice choices shuffle sample "
        "betavariate expovariate triangular getrandbits seed setstate".split()
    ),
    "numpy.random": frozenset(
        "rand randn random random_sample normal uniform randint choice permutation shuffle "
        "standard_normal exponential seed set_state".split()
    ),
}
"""Functions of other modules that draw from a global generator, or seed it."""

CLOCKS = frozenset("time time_ns perf_counter perf_counter_ns monotonic process_time".split())
"""Functions of ``time`` that say when it is."""

COUNTS = frozenset("step updates total_steps progress stage stage_step stage_progress".split())
"""What of ``ctx`` is a scalar."""

CALLING = frozenset("map filter sorted exec eval next iter getattr reduce __import__".split())
"""Functions of Python that may call any other."""

HARMLESS = frozenset(
    "append extend items values keys get copy format join startswith endswith split strip lower "
    "upper index count replace removeprefix removesuffix pop insert update setdefault".split()
)
"""Methods of lists, dictionaries and strings."""

GUARDS = frozenset("isinstance issubclass hasattr callable is_tensor type".split())
"""Functions by which a program tells sorts of values apart."""
