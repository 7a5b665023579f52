// Calls of TVM's compiled functions with PyTorch's tensors, their parallel loops, and weights packed for them.

#pragma once

#include <dlfcn.h>

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <tvm/ffi/c_api.h>

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// ---- Parallel loops ----

// What TVM hands to a part of a parallel loop (tvm/runtime/c_backend_api.h).
struct ParallelGroup {
  void* sync_handle;
  int32_t num_task;
};
using ParallelPart = int (*)(int number, ParallelGroup* group, void* data);

// Runs a library's parallel loop on PyTorch's threads, as many as PyTorch may use here: one inside of
// another parallel loop.
int launch(ParallelPart part, void* data, int) {
  ParallelGroup group{nullptr, at::in_parallel_region() ? 1 : at::get_num_threads()};
  at::parallel_for(0, group.num_task, 1, [&](int64_t from, int64_t to) {
    for (int64_t number = from; number < to; ++number) part(static_cast<int>(number), &group, data);
  });
  return 0;
}

using Launch = decltype(&launch);

// ---- Calls ----

bool served(const Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && !tensor.is_neg();
}

// An array as a library takes it: float32 on the CPU, contiguous.
struct Seen {
  DLTensor array;

  explicit Seen(const Tensor& tensor) {
    array = {tensor.data_ptr(), {kDLCPU, 0}, static_cast<int32_t>(tensor.dim()), {kDLFloat, 32, 1},
             const_cast<int64_t*>(tensor.sizes().data()), nullptr, 0};
  }
  Seen(const Seen&) = delete;
};

// The same, seen with another shape.
template <size_t rank>
struct Array : Seen {
  std::array<int64_t, rank> shape;

  Array(const Tensor& tensor, std::array<int64_t, rank> as) : Seen(tensor), shape(as) {
    array.ndim = rank;
    array.shape = shape.data();
  }
};

TVMFFIAny argument(Seen& seen) {
  TVMFFIAny any{};
  any.type_index = kTVMFFIDLTensorPtr;
  any.v_ptr = &seen.array;
  return any;
}

TVMFFIAny argument(int64_t value) {
  TVMFFIAny any{};
  any.type_index = kTVMFFIInt;
  any.v_int64 = value;
  return any;
}

template <typename... Arguments>
int64_t call(TVMFFISafeCallType function, Arguments&&... arguments) {
  TVMFFIAny given[] = {argument(arguments)...}, result{};
  if (function(nullptr, given, sizeof...(arguments), &result) != 0) {
    TVMFFIObjectHandle error = nullptr;
    TVMFFIErrorMoveFromRaised(&error);
    const TVMFFIByteArray said = TVMFFIErrorGetCellPtr(error)->message;
    const std::string message(said.data, said.size);
    TVMFFIObjectDecRef(error);
    TORCH_CHECK(false, "dietlab: the arrays fit the library; got ", message);
  }
  return result.type_index == kTVMFFIInt ? result.v_int64 : 0;
}

// ---- Packed weights ----

// Weights that were packed once, and what they were packed from.
struct Packed {
  Tensor panels;
  std::vector<int64_t> versions;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> sources;
};

std::mutex packed_mutex;

// Returns the weights (and bias) as `pack` leaves them for a library, packed now unless they were. They are
// packed again after PyTorch changed them in place, as an optimizer or load_state_dict does; a change through
// `weight.data` leaves no trace. `version` is that of the weights: a slice of a parameter does not count its
// changes.
template <typename Pack>
Tensor packed(const void* library, const Tensor& weight, const OptionalTensor& bias, int64_t version,
              const Pack& pack) {
  // A storage may be seen in several ways: a weight and its transpose share one.
  using Key = std::vector<int64_t>;
  static std::map<Key, Packed> all;

  Key key{reinterpret_cast<int64_t>(library)};
  std::vector<int64_t> versions{version};
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> sources;
  auto add = [&](const Tensor& tensor) {
    key.push_back(reinterpret_cast<int64_t>(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()));
    key.push_back(tensor.storage_offset());
    key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
    key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
    sources.push_back(tensor.storage().getWeakStorageImpl());
  };
  add(weight);
  if (bias) {
    add(*bias);
    versions.push_back(bias->_version());
  }
  std::lock_guard<std::mutex> guard(packed_mutex);
  const auto found = all.find(key);
  if (found != all.end() && found->second.versions == versions) return found->second.panels;

  // While a weak reference lives, no other storage gets the address of its own.
  for (auto entry = all.begin(); entry != all.end();) {
    bool gone = false;
    for (const auto& source : entry->second.sources) gone |= source.expired();
    entry = gone ? all.erase(entry) : std::next(entry);
  }
  const Tensor panels = pack();
  all[key] = Packed{panels, versions, sources};
  return panels;
}

}  // namespace
