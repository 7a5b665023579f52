// The operators dietlab::linear, grouped_linear, batch_matmul and convolution of PyTorch, which run tuned libraries.
//
// They are in C++ because a call through Python takes as long as a whole product of one row, and because a graph
// that PyTorch compiled calls them without Python. A library's parallel loops run on PyTorch's own threads: a
// second pool would wait for the same cores.

#include "convolution.h"

namespace {

// ---- dietlab::linear ----

// Returns the weights (and bias) of a layer in one array of panels; `version` is that of the weights.
Tensor panels_of(const Library& library, const Tensor& weight, const OptionalTensor& bias, int64_t version) {
  return packed(&library, weight, bias, version, [&] {
    const int64_t n = weight.size(0), k = weight.size(1);
    const Tensor w = weight.contiguous(), b = bias ? bias->contiguous() : Tensor();
    // Zeros in the gaps that a library leaves, so that saved and compared weights are well defined.
    const Tensor panels = zero_panels(call(library.packed_floats, n, k), weight.options());
    Array<2> w_array(w, {n, k});
    Array<1> panels_array(panels, {panels.size(0)});
    if (bias) {
      Array<1> b_array(b, {n});
      call(library.pack, w_array, b_array, panels_array);
    } else {
      call(library.pack, w_array, panels_array);
    }
    return panels;
  });
}

// Writes x [..., K] times packed weights to y [..., N]; both are contiguous.
void multiply(const Library& library, const Tensor& x, const Tensor& panels, const Tensor& y) {
  const int64_t rows = y.numel() / y.size(-1);
  Array<2> x_array(x, {rows, x.size(-1)}), y_array(y, {rows, y.size(-1)});
  Array<1> panels_array(panels, {panels.numel()});
  call(library.run, x_array, panels_array, y_array);
}

Tensor product(const Library& library, const Tensor& x, const Tensor& panels, int64_t n) {
  auto shape = x.sizes().vec();
  shape.back() = n;
  Tensor y = at::empty(shape, x.options());
  if (y.numel() > 0) multiply(library, x.contiguous(), panels.contiguous(), y);
  return y;
}

// Computes the operator by PyTorch, for tensors that no library supports.
Tensor linear_reference(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                        c10::string_view activation, c10::string_view) {
  return activated(at::linear(x, weight, bias), activation);
}

// Returns whether a library supports these weights: changes of inference tensors are not counted.
bool is_layer(const Tensor& weight, const OptionalTensor& bias) {
  auto right = [](const Tensor& tensor) { return served(tensor) && !tensor.is_inference(); };
  return right(weight) && weight.dim() == 2 &&
         (!bias || (right(*bias) && bias->dim() == 1 && bias->size(0) == weight.size(0)));
}

Tensor linear_cpu(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                  c10::string_view activation, c10::string_view folder) {
  const bool fits = is_layer(weight, bias) && served(x) && x.dim() > 0 && x.size(-1) == weight.size(1);
  if (!fits) return linear_reference(x, weight, bias, activation, folder);
  const Library* library = x.numel() && weight.numel() ? library_of(folder) : nullptr;
  if (!library) return linear_reference(x, weight, bias, activation, folder);
  return product(*library, x, panels_of(*library, weight, bias, weight._version()), weight.size(0));
}

// Returns the packed weights of a layer, packing them if necessary; an empty tensor if PyTorch computes it.
Tensor pack_linear(const Tensor& weight, const OptionalTensor& bias, c10::string_view folder) {
  const bool fits = is_layer(weight, bias) && weight.numel() > 0;
  const Library* library = fits ? library_of(folder) : nullptr;
  return library ? panels_of(*library, weight, bias, weight._version()) : at::empty({0});
}

// What comes out, for any length, without computing it.
Tensor product_meta(const Tensor& x, const c10::SymInt& n) {
  auto shape = x.sym_sizes().vec();
  shape.back() = n;
  return at::empty_symint(shape, x.options());
}

Tensor linear_meta(const Tensor& x, const Tensor& weight, const OptionalTensor&, c10::string_view,
                   c10::string_view) {
  return product_meta(x, weight.sym_size(0));
}

using LinearFunction = decltype(linear_cpu);

Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias, c10::string_view activation,
              c10::string_view folder) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("dietlab::linear", "").typed<LinearFunction>();
  return op.call(x, weight, bias, activation, folder);
}

// The backward is PyTorch's: gradients are other products than the one that was tuned.
struct LinearGradient : torch::autograd::Function<LinearGradient> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const OptionalTensor& bias, const std::string& activation,
                        const std::string& folder) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, weight, bias.value_or(Tensor())});
    context->saved_data["activation"] = activation;
    return linear(x, weight, bias, activation, folder);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const std::string activation = context->saved_data["activation"].toStringRef();
    const bool has_bias = bias.defined();
    Tensor passed = gradients[0];
    if (activation != "none") {
      const Tensor before = at::linear(x, weight, has_bias ? OptionalTensor(bias) : std::nullopt);
      passed = activation == "relu"
                   ? at::threshold_backward(passed, before, 0)
                   : at::gelu_backward(passed, before, activation == "gelu_tanh" ? "tanh" : "none");
    }
    const Tensor rows = passed.reshape_symint({-1, passed.sym_size(-1)});
    return {
        context->needs_input_grad(0) ? at::matmul(passed, weight) : Tensor(),
        context->needs_input_grad(1) ? rows.t().matmul(x.reshape_symint({-1, x.sym_size(-1)})) : Tensor(),
        // A bias that is absent has no number.
        has_bias && context->needs_input_grad(2) ? rows.sum(0) : Tensor(),
        Tensor(),
        Tensor(),
    };
  }
};

Tensor linear_autograd(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                       c10::string_view activation, c10::string_view folder) {
  if (differentiated_otherwise(x, weight, bias)) return linear_reference(x, weight, bias, activation, folder);
  if (at::GradMode::is_enabled() && (wants(x) || wants(weight) || wants(bias))) {
    return LinearGradient::apply(x, weight, bias, std::string(activation), std::string(folder));
  }
  at::AutoDispatchBelowADInplaceOrView below;
  return linear(x, weight, bias, activation, folder);
}

// ---- dietlab::packed_linear ----

Tensor packed_linear(const Tensor& x, const Tensor& panels, int64_t n, int64_t k, c10::string_view folder) {
  auto said = [](const Tensor& tensor) {
    return c10::str(tensor.layout(), " ", tensor.scalar_type(), " on ", tensor.device());
  };
  TORCH_CHECK(x.layout() == at::kStrided && served(x) && served(panels),
              "dietlab: a layer of packed weights takes tensors in float32 on the CPU; got ", said(x), ", and weights ",
              said(panels), ". dietlab.torch.pack(model) keeps the originals, for all that PyTorch takes.");
  TORCH_CHECK(x.dim() > 0 && x.size(-1) == k, "dietlab: a layer takes x [..., ", k, "]; got ", x.sizes());
  const Library* library = library_of(folder);
  TORCH_CHECK(library, "dietlab: packed weights are multiplied by the library that they were packed for, ",
              std::string(folder), "; got none that runs here. Replace the layers of the original model.");
  TORCH_CHECK(call(library->packed_floats, n, k) == panels.numel(), "dietlab: weights [", n, ", ", k,
              "] are packed for ", std::string(folder), "; got ", panels.numel(), " numbers. Pack them again.");
  return product(*library, x, panels, n);
}

Tensor packed_linear_meta(const Tensor& x, const Tensor&, int64_t n, int64_t, c10::string_view) {
  return product_meta(x, n);
}

using PackedLinearFunction = decltype(packed_linear);

Tensor packed_linear_autograd(const Tensor& x, const Tensor& panels, int64_t n, int64_t k,
                              c10::string_view folder) {
  static auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("dietlab::packed_linear", "").typed<PackedLinearFunction>();
  TORCH_CHECK(!(at::GradMode::is_enabled() && wants(x)) && !differentiated_otherwise(x, panels, std::nullopt),
              "dietlab: a layer of packed weights has no gradient. Call it under torch.no_grad().");
  at::AutoDispatchBelowADInplaceOrView below;
  return op.call(x, panels, n, k, folder);
}

Tensor packed_linear_autocast(const Tensor&, const Tensor&, int64_t, int64_t, c10::string_view) {
  TORCH_CHECK(false, "dietlab: a layer of packed weights computes in float32, not under autocast. "
                     "dietlab.torch.pack(model) keeps the originals, for all that PyTorch takes.");
}

// ---- dietlab::grouped_linear ----

// Calls `each` with every group that has rows, and these rows of x (from, to); returns the rows of all groups.
template <typename Each>
int64_t each_group(const Tensor& x, const Tensor& weights, const Tensor& ends, Each each) {
  TORCH_CHECK(x.dim() == 2 && weights.dim() == 3 && ends.dim() == 1 && x.size(1) == weights.size(2) &&
                  ends.size(0) == weights.size(0),
              "dietlab: grouped_linear takes x [rows, K], weights [groups, N, K] and ends [groups]; got ", x.sizes(),
              ", ", weights.sizes(), " and ", ends.sizes());
  const Tensor last = ends.to(at::kCPU, at::kLong).contiguous();
  std::vector<int64_t> end(last.size(0));
  for (int64_t group = 0; group < last.size(0); ++group) {
    // Inside of torch.func a tensor may be a wrapper, whose memory cannot be read.
    end[group] = last.has_storage() ? last.const_data_ptr<int64_t>()[group] : last[group].item<int64_t>();
  }
  int64_t row = 0;
  for (int64_t group = 0; group < weights.size(0); ++group) {
    TORCH_CHECK(row <= end[group] && end[group] <= x.size(0),
                "dietlab: ends ascend, and none is beyond the ", x.size(0), " rows of x; got ", end[group]);
    if (row < end[group]) each(group, row, end[group]);
    row = end[group];
  }
  return row;
}

// Multiplies the rows of x from ends[e - 1] to ends[e] by weights[e]; rows after the last group are ignored.
Tensor grouped_linear_reference(const Tensor& x, const Tensor& weights, const Tensor& ends, c10::string_view) {
  std::vector<Tensor> parts;
  const int64_t rows = each_group(x, weights, ends, [&](int64_t group, int64_t from, int64_t to) {
    parts.push_back(at::linear(x.slice(0, from, to), weights.select(0, group)));
  });
  // Under autocast a product is of another type.
  const auto kind = parts.empty() ? x.options() : parts[0].options();
  parts.push_back(at::zeros({x.size(0) - rows, weights.size(1)}, kind));
  return at::cat(parts);
}

Tensor grouped_linear_cpu(const Tensor& x, const Tensor& weights, const Tensor& ends, c10::string_view folder) {
  const bool fits = served(x) && served(weights) && x.dim() == 2 && weights.dim() == 3 && x.numel() > 0 &&
                    weights.numel() > 0 && !weights.is_inference();
  const Library* library = fits ? library_of(folder) : nullptr;
  if (!library) return grouped_linear_reference(x, weights, ends, folder);
  const Tensor source = x.contiguous(), y = at::empty({x.size(0), weights.size(1)}, x.options());
  const int64_t rows = each_group(x, weights, ends, [&](int64_t group, int64_t from, int64_t to) {
    const Tensor panels = panels_of(*library, weights.select(0, group), std::nullopt, weights._version());
    multiply(*library, source.slice(0, from, to), panels, y.slice(0, from, to));
  });
  y.slice(0, rows, x.size(0)).zero_();
  return y;
}

Tensor grouped_linear_meta(const Tensor& x, const Tensor& weights, const Tensor&, c10::string_view) {
  return at::empty_symint({x.sym_size(0), weights.sym_size(1)}, x.options());
}

using GroupedLinearFunction = decltype(grouped_linear_cpu);

Tensor grouped_linear_autograd(const Tensor& x, const Tensor& weights, const Tensor& ends, c10::string_view folder) {
  static auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("dietlab::grouped_linear", "").typed<GroupedLinearFunction>();
  const bool trained = at::GradMode::is_enabled() && (wants(x) || wants(weights));
  if (trained || differentiated_otherwise(x, weights, std::nullopt)) {
    return grouped_linear_reference(x, weights, ends, folder);
  }
  at::AutoDispatchBelowADInplaceOrView below;
  return op.call(x, weights, ends, folder);
}

// ---- dietlab::batch_matmul ----

Tensor batch_matmul_reference(const Tensor& x, const Tensor& w, bool transposed, c10::string_view) {
  return at::matmul(x, transposed ? w.transpose(-2, -1) : w);
}

Tensor batch_matmul_cpu(const Tensor& x, const Tensor& w, bool transposed, c10::string_view folder) {
  const bool fits = served(x) && served(w) && x.dim() > 2 && x.dim() == w.dim() &&
                    x.sizes().slice(0, x.dim() - 2) == w.sizes().slice(0, w.dim() - 2) &&
                    // Queries and keys of different lengths were not tuned for.
                    x.size(-2) == w.size(-2) && (transposed ? x.size(-1) == w.size(-1) : x.size(-1) == w.size(-2));
  const Library* library = fits ? library_of(folder) : nullptr;
  if (!library) return batch_matmul_reference(x, w, transposed, folder);
  const int64_t rows = x.size(-2), depth = x.size(-1), cols = transposed ? w.size(-2) : w.size(-1);
  auto shape = x.sizes().vec();
  shape.back() = cols;
  Tensor y = at::empty(shape, x.options());
  if (y.numel() == 0 || depth == 0) return y.zero_();
  const int64_t products = y.numel() / (rows * cols);
  const Tensor left = x.contiguous(), right = w.contiguous();
  Array<3> x_array(left, {products, rows, depth}), y_array(y, {products, rows, cols});
  Array<3> w_array(right, {products, w.size(-2), w.size(-1)});
  call(library->run, x_array, w_array, y_array);
  return y;
}

Tensor batch_matmul_meta(const Tensor& x, const Tensor& w, bool transposed, c10::string_view) {
  return product_meta(x, w.sym_size(transposed ? -2 : -1));
}

using BatchMatmulFunction = decltype(batch_matmul_cpu);

Tensor batch_matmul(const Tensor& x, const Tensor& w, bool transposed, c10::string_view folder) {
  static auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("dietlab::batch_matmul", "").typed<BatchMatmulFunction>();
  return op.call(x, w, transposed, folder);
}

struct BatchMatmulGradient : torch::autograd::Function<BatchMatmulGradient> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& w,
                        bool transposed, const std::string& folder) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, w});
    context->saved_data["transposed"] = transposed;
    return batch_matmul(x, w, transposed, folder);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &w = saved[1], &passed = gradients[0];
    const bool transposed = context->saved_data["transposed"].toBool();
    return {
        at::matmul(passed, transposed ? w : w.transpose(-2, -1)),
        transposed ? at::matmul(passed.transpose(-2, -1), x) : at::matmul(x.transpose(-2, -1), passed),
        Tensor(),
        Tensor(),
    };
  }
};

Tensor batch_matmul_autograd(const Tensor& x, const Tensor& w, bool transposed, c10::string_view folder) {
  if (differentiated_otherwise(x, w, std::nullopt)) return batch_matmul_reference(x, w, transposed, folder);
  if (at::GradMode::is_enabled() && (wants(x) || wants(w))) {
    return BatchMatmulGradient::apply(x, w, transposed, std::string(folder));
  }
  at::AutoDispatchBelowADInplaceOrView below;
  return batch_matmul(x, w, transposed, folder);
}

}  // namespace

TORCH_LIBRARY(dietlab, m) {
  // PyTorch's compiler passes contiguous rows, so no copy is needed here.
  const std::vector<at::Tag> tags{at::Tag::needs_contiguous_strides, at::Tag::pt2_compliant_tag};
  m.def("linear(Tensor x, Tensor weight, Tensor? bias, str activation, str library) -> Tensor", tags);
  m.def("grouped_linear(Tensor x, Tensor weights, Tensor ends, str library) -> Tensor", tags);
  m.def("batch_matmul(Tensor x, Tensor w, bool transposed, str library) -> Tensor", tags);
  m.def("packed_linear(Tensor x, Tensor panels, int n, int k, str library) -> Tensor", tags);
  // An image keeps its layout: channels last needs no copy.
  m.def(
      "convolution(Tensor x, Tensor[] weights, Tensor? bias, float epsilon, int[] window, int groups, "
      "str activation, str library, int[] sizes, Tensor? residual=None) -> Tensor",
      {at::Tag::needs_fixed_stride_order, at::Tag::pt2_compliant_tag});
  m.def("pack_convolution(Tensor[] weights, Tensor? bias, float epsilon, str library) -> Tensor", &pack_convolution);
  m.def("pack(Tensor weight, Tensor? bias, str library) -> Tensor", &pack_linear);
  m.def("drop_packed(Tensor weight) -> ()", &drop_packed);
  m.def("find_libraries(str folder) -> ()", &find_libraries);
  m.def("check_with(int function) -> ()", &check_with);
}

TORCH_LIBRARY_IMPL(dietlab, CompositeExplicitAutograd, m) {
  m.impl("linear", &linear_reference);
  m.impl("packed_linear", &packed_linear);
  m.impl("grouped_linear", &grouped_linear_reference);
  m.impl("batch_matmul", &batch_matmul_reference);
  m.impl("convolution", &convolution_reference);
}

TORCH_LIBRARY_IMPL(dietlab, CPU, m) {
  m.impl("linear", &linear_cpu);
  m.impl("grouped_linear", &grouped_linear_cpu);
  m.impl("batch_matmul", &batch_matmul_cpu);
  m.impl("convolution", &convolution_cpu);
}

TORCH_LIBRARY_IMPL(dietlab, AutocastCPU, m) { m.impl("packed_linear", &packed_linear_autocast); }

TORCH_LIBRARY_IMPL(dietlab, Meta, m) {
  m.impl("linear", &linear_meta);
  m.impl("packed_linear", &packed_linear_meta);
  m.impl("grouped_linear", &grouped_linear_meta);
  m.impl("batch_matmul", &batch_matmul_meta);
  m.impl("convolution", &convolution_meta);
}

TORCH_LIBRARY_IMPL(dietlab, Autograd, m) {
  m.impl("linear", &linear_autograd);
  m.impl("packed_linear", &packed_linear_autograd);
  m.impl("grouped_linear", &grouped_linear_autograd);
  m.impl("batch_matmul", &batch_matmul_autograd);
  m.impl("convolution", &convolution_autograd);
}

// Under autocast PyTorch chooses types, and torch.vmap its own products: both know at::linear and at::matmul.
#define DIETLAB_THROUGH_PYTORCH(key)                     \
  TORCH_LIBRARY_IMPL(dietlab, key, m) {                  \
    m.impl("linear", &linear_reference);                 \
    m.impl("grouped_linear", &grouped_linear_reference); \
    m.impl("batch_matmul", &batch_matmul_reference);     \
    m.impl("convolution", &convolution_reference);       \
  }
DIETLAB_THROUGH_PYTORCH(AutocastCPU)
DIETLAB_THROUGH_PYTORCH(AutocastCUDA)
DIETLAB_THROUGH_PYTORCH(AutocastXPU)
DIETLAB_THROUGH_PYTORCH(AutocastMPS)
DIETLAB_THROUGH_PYTORCH(FuncTorchBatched)
