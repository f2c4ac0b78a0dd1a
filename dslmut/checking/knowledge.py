"""What the checker knows of Python and torch by name: one table per question.

The names follow torch 2.13's documentation. A name that stands in no table is unknown, and what
is unknown is never reported.
"""

from __future__ import annotations

MODULE_WRITERS = frozenset(
    "train eval load_state_dict requires_grad_ register_parameter register_buffer register_module "
    "register_forward_hook register_forward_pre_hook register_full_backward_hook "
    "register_full_backward_pre_hook register_backward_hook register_state_dict_pre_hook "
    "register_load_state_dict_pre_hook register_load_state_dict_post_hook "
    "add_module apply share_memory to_empty set_submodule set_extra_state compile "
    "reset_parameters reset_running_stats".split()
)
"""Methods of ``nn.Module`` that change it, and that nothing else has."""

MODULE_MOVERS = frozenset("to cpu cuda xpu ipu mtia half float double bfloat16 type".split())
"""Methods that change a module in place, but give a new tensor: only a known module's count."""

MODULE_CONTAINER_WRITERS = frozenset("append extend insert pop clear update __setitem__".split())
"""Methods by which a module's own containers change (``ModuleList``, a list in a field)."""

MODULE_ITSELF = MODULE_MOVERS | frozenset(
    "train eval requires_grad_ apply share_memory to_empty".split()
)
"""Methods of ``nn.Module`` that return the module itself."""

MODULE_PARTS = frozenset(
    "parameters named_parameters buffers named_buffers modules named_modules children "
    "named_children state_dict get_submodule get_parameter get_buffer".split()
)
"""Methods of ``nn.Module`` whose result holds parts of it."""

NAMED_PARTS = frozenset("named_parameters named_buffers named_modules named_children items".split())
"""Those whose result holds pairs of a name and a part."""

MODULE_TENSORS = frozenset(
    "parameters named_parameters buffers named_buffers state_dict get_parameter get_buffer".split()
)
"""Those whose parts are tensors."""

STATISTICS = frozenset({"running_mean", "running_var", "num_batches_tracked"})
"""Buffers of torch's own modules that a forward pass moves."""

MODULE_PARAMETERS = frozenset({"parameters", "named_parameters", "get_parameter"})
"""Those whose parts are parameters."""

STATE_WRITERS = frozenset("step add_param_group load_state_dict".split())
"""Methods that change an optimizer state."""

MACHINERY = frozenset(
    "__class__ __dict__ __setattr__ __getattr__ __call__ forward _parameters _buffers _modules "
    "_non_persistent_buffers_set _forward_hooks _forward_pre_hooks _backward_hooks".split()
)
"""Attributes of a module by which it works, and which nobody should write."""

INSIDES = frozenset("__dict__ _parameters _buffers _modules".split())
"""Attributes by which a module can be changed past all of its methods."""

SCRATCH = frozenset({"grad"})
"""Attributes of a tensor that belong to the backward pass and not to the model."""

TENSOR_ATTRIBUTES = frozenset({"grad", "requires_grad", "data"})
"""The attributes of a tensor that can be assigned."""

OWN_ATTRIBUTES = frozenset({"requires_grad", "requires_grad_", "retain_grad", "register_hook"})
"""What belongs to the tensor object itself, so that a view's is another's."""

TENSOR_NUMBERS = frozenset(
    "shape ndim dtype device layout is_leaf is_cuda is_sparse names numel size dim stride "
    "item tolist nelement data_ptr element_size storage_offset is_contiguous itemsize nbytes "
    "is_floating_point is_complex get_device ndimension".split()
)
"""Attributes and methods of a tensor that are plain values."""

VALUE_METHODS = frozenset({"item", "tolist"})
"""Those of them that depend on the values in it."""

OBJECT_METHODS = frozenset(
    "backward register_hook register_post_accumulate_grad_hook retain_grad data_ptr "
    "untyped_storage share_memory_ is_set_to".split()
)
"""Methods that are about the tensor object itself, not about its value."""

VIEWS = frozenset(
    "T mT H mH data real imag view view_as reshape reshape_as detach transpose swapaxes swapdims "
    "t permute movedim moveaxis squeeze unsqueeze flatten unflatten ravel expand expand_as "
    "broadcast_to narrow select diagonal unfold as_strided contiguous to float double half "
    "bfloat16 cpu cuda type type_as requires_grad_ numpy untyped_storage "
    "__getitem__ values indices resolve_conj resolve_neg positive align_to rename refine_names "
    "as_subclass view_as_real view_as_complex atleast_1d atleast_2d atleast_3d "
    "adjoint from_numpy as_tensor asarray".split()
)
"""Attributes, methods and functions whose result may share the storage of the tensor."""

VIEW_LISTS = frozenset(
    "chunk split tensor_split hsplit vsplit dsplit unbind unsafe_chunk unsafe_split "
    "split_with_sizes".split()
)
"""Those whose result is a tuple of tensors that share its storage."""

FUNCTION_WRITERS = {
    "vector_to_parameters": (1,),
    "swap_tensors": (0, 1),
    "fuse_conv_bn_weights_": (0,),
    "remove_weight_norm": (0,),
    "remove_spectral_norm": (0,),
}
"""torch's functions that change arguments, those at these positions."""

OWN_WRITERS = frozenset(
    {"dslmut.set_field"}
    | {f"{m}.{name}" for m in ("operator", "_operator") for name in ("setitem", "delitem")}
)
"""Functions outside of torch that change their first argument."""

INPLACE_POSITIONS = {
    "relu": 1, "relu6": 1, "selu": 1, "silu": 1, "mish": 1, "hardswish": 1, "hardsigmoid": 1,
    "elu": 2, "celu": 2, "leaky_relu": 2, "threshold": 3, "hardtanh": 3, "rrelu": 4, "dropout": 3,
}  # fmt: skip
"""Where torch's functions take ``inplace`` by position."""

GRADIENT_WRITERS = frozenset("clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_".split())
"""torch's functions that change gradients alone."""

COPIES = frozenset({"copy.deepcopy", "torch.clone"})
"""Functions that give a copy which shares nothing."""

SHALLOW = frozenset({"copy.copy", "torch.compile", "torch.jit.script", "torch.jit.trace"})
"""Functions that give another object on the same parameters."""

NUMBERS = frozenset(
    "len isinstance issubclass id hash callable bool int float complex str repr format ord chr "
    "bytes range print all any hasattr divmod round abs input open".split()
)
"""Functions of Python whose result is no alias of an argument."""

ITERATORS = frozenset("chain islice cycle zip_longest product".split())
"""Functions of ``itertools`` that pass on the items of their arguments."""

COLLATORS = frozenset({"torch.utils.data.dataloader.DataLoader"})
"""Classes that give copies of what they are made of: a loader stacks items into batches."""

CONTAINER_ADDERS = frozenset("append add appendleft insert setdefault push put".split())
"""Methods by which a container comes to hold its arguments."""

CONTAINER_EXTENDERS = frozenset("extend update extendleft".split())
"""Methods by which a container comes to hold the items of its arguments."""

CONTAINER_GETTERS = frozenset("pop get popleft popitem setdefault copy".split())
"""Methods whose result is an item of the container."""

CONTAINER_VIEWS = frozenset({"values", "items", "keys"})
"""Methods of a dictionary whose result holds its items."""


NO_GRADIENTS = frozenset({"no_grad", "inference_mode"})
"""Context managers and decorators of torch under which nothing is recorded for differentiation."""

VALUE_WRITERS = frozenset({"load_state_dict", "reset_parameters"})
"""Methods of ``nn.Module`` that give its parameters new values."""

PAIRS = frozenset("max min median nanmedian mode sort topk kthvalue cummax cummin".split())
"""Methods and functions of tensors that may give values and, second, where these stand."""

CONSTANTS = frozenset(
    "detach detach_ data indices numpy argmax argmin argsort eq ne lt gt le ge isnan isinf isfinite long "
    "int short char byte bool nonzero bincount multinomial bernoulli sign floor ceil round trunc "
    "searchsorted bucketize histc logical_and logical_or logical_not logical_xor allclose equal "
    "zeros_like ones_like empty_like rand_like randn_like full_like randint_like new_zeros "
    "new_ones new_empty new_full new_tensor heaviside isclose any all count_nonzero".split()
)
"""Methods and functions whose result is not differentiated by the tensors they get."""

BACKWARD = frozenset({"torch.autograd.backward", "torch.autograd.grad"})
"""Functions that differentiate their first argument."""

PARAMETER_WRITERS = frozenset({"dslmut.update"})
"""Functions that give new values to the parameters of their first argument."""

DIFFERENTIATING = frozenset(
    f"torch.func.{n}" for n in "grad grad_and_value vjp jvp jacrev jacfwd hessian linearize".split()
)
"""Functions of torch that differentiate the function they get."""

REPEATING = frozenset(
    {
        "torch.vmap",
        "torch.func.vmap",
        "torch.utils.checkpoint.checkpoint",
        "torch.utils.checkpoint.checkpoint_sequential",
    }
)
"""Functions that run the function they get again, or for many at once."""


def in_place(name: str) -> bool:
    """Say whether a tensor method or a torch function of that name changes its receiver."""
    return len(name) > 1 and name.endswith("_") and not name.endswith("__")


def tells(method: str) -> bool:
    """Say whether the name of a method says what ``C.method(a)`` does with *a*."""
    return in_place(method) or method in MODULE_WRITERS | VIEWS | CONSTANTS


_TENSOR_MODULES = frozenset(
    "torch torch.functional torch.nn.functional torch._C._nn torch.linalg torch.fft torch.special "
    "torch.sparse torch.nn.init torch.signal.windows".split()
)

MAKERS = frozenset(
    f"torch.{n}"
    for n in "tensor as_tensor zeros ones empty full eye arange linspace logspace rand randn randint "
    "randperm zeros_like ones_like empty_like full_like rand_like randn_like".split()
)
"""Functions of torch that make one new tensor."""

_NO_TENSORS = frozenset(
    "load save compile device Generator vmap manual_seed seed initial_seed set_default_dtype "
    "set_default_device get_default_dtype get_default_device get_num_threads set_num_threads "
    "set_printoptions set_grad_enabled no_grad enable_grad inference_mode autocast cond while_loop "
    "typename finfo iinfo result_type promote_types can_cast use_deterministic_algorithms".split()
)
"""Those functions of these modules that give something else."""


def gives_tensors(qualified: str) -> bool:
    """Say whether one of torch's functions gives a tensor, or several."""
    module, _, bare = qualified.rpartition(".")
    return module in _TENSOR_MODULES and bare not in _NO_TENSORS


def of_torch(qualified: str) -> bool:
    """Say whether a dotted name is one of torch's functions."""
    return qualified.startswith("torch.")
