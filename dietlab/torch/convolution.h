// The operator dietlab::convolution: convolutions over images x [N, C, H, W] and sequences x [N, C, L], or a single one
// without N, with a batch norm of fixed statistics, a residual and an activation.
//
// A library reads and writes channels last. The result is PyTorch's, with channels second, seen in such memory; an x in
// such memory is read where it is, any other is copied once.

#pragma once

#include <bit>
#include <limits>

#include <torch/csrc/autograd/autograd.h>

#include "libraries.h"

namespace {

// The four numbers of each dimension of the image: stride, zeros before and after, and dilation.
struct Window {
  at::IntArrayRef numbers;

  int64_t dims() const { return static_cast<int64_t>(numbers.size()) / 4; }
  int64_t stride(int64_t dim) const { return numbers[4 * dim]; }
  int64_t before(int64_t dim) const { return numbers[4 * dim + 1]; }
  int64_t after(int64_t dim) const { return numbers[4 * dim + 2]; }
  int64_t dilation(int64_t dim) const { return numbers[4 * dim + 3]; }

  // Returns how far a size is beyond that of a single position; negative if the kernel does not fit.
  template <typename Size>
  Size room(int64_t dim, const Size& size, const Size& kernel) const {
    return size + Size(before(dim) + after(dim) - 1) - (kernel - Size(1)) * Size(dilation(dim));
  }
  template <typename Size>
  Size positions(int64_t dim, const Size& size, const Size& kernel) const {
    return room(dim, size, kernel) / Size(stride(dim)) + Size(1);
  }
};

// The arguments of the operator, which all its forms take.
//   weights: those of the layer, [OC, C / groups, KH, KW] or [OC, C / groups, KL], contiguous or channels last; behind
//     them those of the norm: nothing; mean and variance of each output channel; or these and its scale and shift. They
//     are one list because a model compiled ahead of time cannot pass an empty one (PyTorch 2.13,
//     findings/aoti_empty_tensor_list.sh).
//   numbers: those of Window.
//   sizes: the extents of N, H and W (or L) that the library is built for; 0 for any.
//   residual: nothing, or what is added before the activation, of the result's shape.
#define DIETLAB_CONVOLUTION                                                                                        \
  const Tensor &x, at::TensorList weights, const OptionalTensor &bias, double epsilon, at::IntArrayRef numbers,    \
      int64_t groups, c10::string_view activation, c10::string_view folder, at::IntArrayRef sizes,                 \
      const OptionalTensor &residual
#define DIETLAB_GIVEN x, weights, bias, epsilon, numbers, groups, activation, folder, sizes, residual

// Returns a result of PyTorch in the memory of the operator's results.
Tensor channels_last(const Tensor& y, int64_t dims) {
  const int64_t channel = y.dim() - dims - 1;
  return y.movedim(channel, -1).contiguous().movedim(-1, channel);
}

Tensor convolution_reference(DIETLAB_CONVOLUTION) {
  const Window window{numbers};
  const Tensor& weight = weights[0];
  const at::TensorList norm = weights.slice(1);
  std::vector<int64_t> stride, padding, dilation, around;
  bool even = true;
  for (int64_t dim = 0; dim < window.dims(); ++dim) {
    stride.push_back(window.stride(dim));
    padding.push_back(window.before(dim));
    dilation.push_back(window.dilation(dim));
    around.insert(around.begin(), {window.before(dim), window.after(dim)});
    even &= window.before(dim) == window.after(dim);
  }
  const Tensor padded = even ? x : at::constant_pad_nd(x, around);
  if (!even) std::fill(padding.begin(), padding.end(), 0);
  Tensor y = window.dims() == 1 ? at::conv1d(padded, weight, bias, stride, padding, dilation, groups)
                                : at::conv2d(padded, weight, bias, stride, padding, dilation, groups);
  if (!norm.empty()) {
    const bool scaled = norm.size() == 4;
    auto given = [&](size_t at) { return scaled ? OptionalTensor(norm[at]) : std::nullopt; };
    y = at::batch_norm(y, given(2), given(3), norm[0], norm[1], false, 0.0, epsilon, true);
  }
  if (residual) y = at::add(y, *residual);
  return channels_last(activated(y, activation), window.dims());
}

// Returns weights as rows [OC, ...] over the same memory; an undefined tensor if that is in neither layout.
Tensor rows_of(const Tensor& weight) {
  if (weight.is_contiguous()) return weight.flatten(1);
  const Tensor last = weight.movedim(1, -1);
  return last.is_contiguous() ? last.flatten(1) : Tensor();
}

// Returns whether a library supports these weights: changes of inference tensors are not counted.
bool is_convolution(const Tensor& weight, const OptionalTensor& bias, at::TensorList norm, int64_t dims) {
  auto right = [](const Tensor& tensor) {
    return served(tensor) && tensor.layout() == at::kStrided && !tensor.is_inference();
  };
  if (!right(weight) || weight.dim() != dims + 2 || weight.numel() == 0 || !rows_of(weight).defined()) return false;
  auto by_channel = [&](const Tensor& tensor) {
    return right(tensor) && tensor.dim() == 1 && tensor.size(0) == weight.size(0);
  };
  return (!bias || by_channel(*bias)) && std::all_of(norm.begin(), norm.end(), by_channel);
}

// Returns whether a library computes x: of these channels, large enough for the kernel, of the library's sizes.
bool is_image(const Tensor& x, const Tensor& weight, const Window& window, int64_t groups, at::IntArrayRef sizes) {
  const int64_t dims = window.dims(), most = std::numeric_limits<int32_t>::max();
  const bool single = x.dim() == dims + 1;
  if (!served(x) || !(single || x.dim() == dims + 2) || x.numel() == 0 || x.numel() > most) return false;
  if (x.size(-dims - 1) != weight.size(1) * groups) return false;
  int64_t outputs = (single ? 1 : x.size(0)) * weight.size(0);
  for (int64_t dim = 0; dim < dims; ++dim) {
    const int64_t size = x.size(dim - dims), kernel = weight.size(dim + 2);
    if (window.room(dim, size, kernel) < 0 || (sizes[dim + 1] && sizes[dim + 1] != size)) return false;
    outputs *= window.positions(dim, size, kernel);
  }
  return outputs <= most && (!sizes[0] || sizes[0] == (single ? 1 : x.size(0)));
}

// Returns weights and bias of the convolution that also computes the norm after it. Factors are computed in float64.
std::pair<Tensor, Tensor> folded(const Tensor& weight, const OptionalTensor& bias, at::TensorList norm, double epsilon) {
  const Tensor added = bias ? *bias : at::zeros({weight.size(0)}, weight.options());
  if (norm.empty()) return {weight, added};
  Tensor factor = (norm[1].to(at::kDouble) + epsilon).rsqrt();
  if (norm.size() == 4) factor = factor * norm[2].to(at::kDouble);
  Tensor shift = (added.to(at::kDouble) - norm[0].to(at::kDouble)) * factor;
  if (norm.size() == 4) shift = shift + norm[3].to(at::kDouble);
  std::vector<int64_t> by_channel(weight.dim(), 1);
  by_channel[0] = weight.size(0);
  return {(weight.to(at::kDouble) * factor.view(by_channel)).to(at::kFloat), shift.to(at::kFloat)};
}

// Returns weights, bias and norm in one array of panels.
Tensor kernel_panels(const Library& library, const Tensor& weight, const OptionalTensor& bias, at::TensorList norm,
                     double epsilon) {
  std::vector<Source> from{{rows_of(weight), weight._version()}};
  if (bias) from.push_back({*bias, bias->_version()});
  for (const Tensor& tensor : norm) from.push_back({tensor, tensor._version()});
  return packed(&library, from, {std::bit_cast<int64_t>(epsilon)}, [&] {
    const auto [kernel, added] = folded(weight, bias, norm, epsilon);
    const Tensor w = kernel.contiguous(), b = added.contiguous();
    const int64_t floats = w.dim() == 3 ? call(library.packed_floats, w.size(0), w.size(1), w.size(2))
                                        : call(library.packed_floats, w.size(0), w.size(1), w.size(2), w.size(3));
    const Tensor panels = zero_panels(floats, w.options());
    Seen w_array(w), b_array(b), panels_array(panels);
    call(library.pack, w_array, b_array, panels_array);
    return panels;
  });
}

Tensor convolution_cpu(DIETLAB_CONVOLUTION) {
  const Window window{numbers};
  const Tensor& weight = weights[0];
  const at::TensorList norm = weights.slice(1);
  const int64_t dims = window.dims();
  const bool fits = is_convolution(weight, bias, norm, dims) && is_image(x, weight, window, groups, sizes);
  const Library* library = fits ? library_of(folder) : nullptr;
  if (!library) return convolution_reference(DIETLAB_GIVEN);
  const bool single = x.dim() == dims + 1;
  const Tensor images = (single ? x.unsqueeze(0) : x).movedim(1, -1).contiguous();
  std::vector<int64_t> shape{images.size(0)};
  for (int64_t dim = 0; dim < dims; ++dim) {
    shape.push_back(window.positions(dim, images.size(dim + 1), weight.size(dim + 2)));
  }
  shape.push_back(weight.size(0));
  // Images with channels last, of the output's shape if one can be added to it.
  auto with_channels_last = [&](const Tensor& given) { return (single ? given.unsqueeze(0) : given).movedim(1, -1); };
  Tensor added;
  if (residual) {
    if (served(*residual) && residual->dim() == x.dim()) added = with_channels_last(*residual).contiguous();
    if (!added.defined() || added.sizes() != shape) return convolution_reference(DIETLAB_GIVEN);
  }
  const Tensor y = at::empty(shape, images.options());
  const Tensor panels = kernel_panels(*library, weight, bias, norm, epsilon);
  Seen x_array(images), panels_array(panels), y_array(y);
  if (residual) {
    Seen added_array(added);
    call(library->run, x_array, panels_array, added_array, y_array);
  } else {
    call(library->run, x_array, panels_array, y_array);
  }
  const Tensor seen = y.movedim(-1, 1);
  return single ? seen.squeeze(0) : seen;
}

// Returns the packed weights of a layer, packing them if necessary; an empty tensor if PyTorch computes it.
Tensor pack_convolution(at::TensorList weights, const OptionalTensor& bias, double epsilon, c10::string_view folder) {
  const Tensor& weight = weights[0];
  const at::TensorList norm = weights.slice(1);
  const Library* library = is_convolution(weight, bias, norm, weight.dim() - 2) ? library_of(folder) : nullptr;
  return library ? kernel_panels(*library, weight, bias, norm, epsilon) : at::empty({0});
}

// What comes out, for any size, without computing it.
Tensor convolution_meta(DIETLAB_CONVOLUTION) {
  const Window window{numbers};
  const Tensor& weight = weights[0];
  const int64_t dims = window.dims(), channel = x.dim() - dims - 1;
  TORCH_CHECK(channel == 0 || channel == 1, "Expected ", dims + 1, "D (unbatched) or ", dims + 2,
              "D (batched) input to conv", dims, "d, but got input of size: ", x.sym_sizes());
  TORCH_SYM_CHECK(x.sym_size(channel).sym_eq(weight.sym_size(1) * groups), "Given groups=", groups,
                  ", weight of size ", weight.sym_sizes(), ", expected input", x.sym_sizes(), " to have ",
                  weight.sym_size(1) * groups, " channels, but got ", x.sym_size(channel), " channels instead");
  std::vector<c10::SymInt> shape;
  if (channel) shape.push_back(x.sym_size(0));
  for (int64_t dim = 0; dim < dims; ++dim) {
    const c10::SymInt size = x.sym_size(channel + 1 + dim), kernel = weight.sym_size(dim + 2);
    TORCH_SYM_CHECK(window.room(dim, size, kernel).sym_ge(0),
                    "Kernel size can't be greater than actual input size; got ", x.sym_sizes());
    shape.push_back(window.positions(dim, size, kernel));
  }
  shape.push_back(weight.sym_size(0));
  return at::empty_symint(shape, x.options()).movedim(-1, channel);
}

using ConvolutionFunction = decltype(convolution_cpu);

Tensor convolution(DIETLAB_CONVOLUTION) {
  static auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("dietlab::convolution", "").typed<ConvolutionFunction>();
  return op.call(DIETLAB_GIVEN);
}

// The backward is PyTorch's: it computes the layer again by PyTorch, and that layer's gradients.
struct ConvolutionGradient : torch::autograd::Function<ConvolutionGradient> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const OptionalTensor& bias,
                        const OptionalTensor& residual, at::TensorList weights, double epsilon,
                        const std::vector<int64_t>& numbers, int64_t groups, const std::string& activation,
                        const std::string& folder, const std::vector<int64_t>& sizes) {
    at::AutoDispatchBelowADInplaceOrView below;
    torch::autograd::variable_list saved{x, bias.value_or(Tensor()), residual.value_or(Tensor())};
    saved.insert(saved.end(), weights.begin(), weights.end());
    context->save_for_backward(saved);
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["numbers"] = numbers;
    context->saved_data["groups"] = groups;
    context->saved_data["activation"] = activation;
    return convolution(DIETLAB_GIVEN);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const bool twice = at::GradMode::is_enabled();
    // One for each tensor and each other argument: epsilon and those behind it.
    torch::autograd::variable_list inputs, found(saved.size() + 6);
    std::copy_if(saved.begin(), saved.end(), std::back_inserter(inputs), [](const Tensor& t) { return wants(t); });
    auto given = [&](size_t at) { return saved[at].defined() ? OptionalTensor(saved[at]) : std::nullopt; };
    const torch::autograd::variable_list weights(saved.begin() + 3, saved.end());
    const auto numbers = context->saved_data["numbers"].toIntVector();
    const std::string activation = context->saved_data["activation"].toStringRef();
    at::AutoGradMode recorded(true);
    const Tensor y =
        convolution_reference(saved[0], weights, given(1), context->saved_data["epsilon"].toDouble(), numbers,
                              context->saved_data["groups"].toInt(), activation, "", {}, given(2));
    const auto computed = torch::autograd::grad({y}, inputs, {gradients[0]}, std::nullopt, twice, true);
    auto next = computed.begin();
    for (size_t at = 0; at < saved.size(); ++at) {
      if (wants(saved[at])) found[at] = *next++;
    }
    return found;
  }
};

Tensor convolution_autograd(DIETLAB_CONVOLUTION) {
  torch::autograd::variable_list others(weights.begin(), weights.end());
  if (residual) others.push_back(*residual);
  if (differentiated_otherwise(x, weights[0], bias, others)) return convolution_reference(DIETLAB_GIVEN);
  const bool wanted = wants(x) || wants(bias) ||
                      std::any_of(others.begin(), others.end(), [](const Tensor& tensor) { return wants(tensor); });
  if (at::GradMode::is_enabled() && wanted) {
    return ConvolutionGradient::apply(x, bias, residual, weights, epsilon, numbers.vec(), groups, std::string(activation),
                                      std::string(folder), sizes.vec());
  }
  at::AutoDispatchBelowADInplaceOrView below;
  return convolution(DIETLAB_GIVEN);
}

}  // namespace
