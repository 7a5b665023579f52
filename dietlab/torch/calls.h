// Calls of TVM's compiled functions with PyTorch's tensors, their parallel loops, and weights packed for them.

#pragma once

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
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

// Runs a library's parallel loop on as many of PyTorch's threads as PyTorch may use here: one inside another
// parallel loop.
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

// An array for a library: float32 on the CPU, contiguous.
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

// Bytes of a huge page of x86 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3, chapter on
// paging).
constexpr size_t kHugePage = 2 << 20;

// Returns zeros for packed weights, in huge pages if the system has them: a processor's prefetcher stops at the end
// of a page, and the next page's address must be looked up. Without them, BERT-base at T = 5 to 128 took 2 to 5 %
// longer.
Tensor zero_panels(int64_t count, const at::TensorOptions& options) {
  const size_t bytes = count * sizeof(float), size = bytes + kHugePage;
  if (bytes < kHugePage) return at::zeros({count}, options);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return at::zeros({count}, options);
  const auto start = (reinterpret_cast<uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage;
  // Whole pages only: the remainder would take another one.
  madvise(reinterpret_cast<void*>(start), bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  auto free = [memory, size](void*) { munmap(memory, size); };
  return at::from_blob(reinterpret_cast<void*>(start), {count}, free, options);
}

// State of weights when they were packed: PyTorch's counts of their changes, and a fingerprint.
using State = std::vector<int64_t>;

// Packed weights, and the state of the weights they were packed from.
struct Packed {
  Tensor panels;
  State state;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> sources;
};

// A storage may have several views: a weight and its transpose share one.
using Key = std::vector<int64_t>;

std::mutex packed_mutex;

std::map<Key, Packed>& all_packed() {
  static std::map<Key, Packed> all;
  return all;
}

// Places of an array in a fingerprint, and the words at each, a cache line. A place costs some 50 ns if the weights
// come from memory, and a call of one row takes 100 us.
constexpr int64_t kPlaces = 32, kWords = 16;

// Returns a number that most likely differs after the array was written to: a change through `weight.data`, another
// process or an alias leaves no other trace. A change of few rows may be missed.
int64_t fingerprint(const Tensor& tensor) {
  const auto* data = static_cast<const uint32_t*>(tensor.const_data_ptr());
  // Words are adjacent along the last dimension, or along the first of a transposed view.
  const bool matrix = tensor.dim() == 2, turned = matrix && tensor.stride(1) != 1 && tensor.stride(0) == 1;
  const int64_t along = turned ? 0 : tensor.dim() - 1;
  const int64_t cols = tensor.dim() ? tensor.size(along) : 1, step = tensor.dim() ? tensor.stride(along) : 1;
  const int64_t rows = matrix ? tensor.size(1 - along) : 1, down = matrix ? tensor.stride(1 - along) : 0;
  uint64_t hash = 14695981039346656037u;  // FNV-1a, a word at a time
  auto take = [&](int64_t row, int64_t from, int64_t to) {
    for (int64_t col = from; col < to; ++col) hash = (hash ^ data[row * down + col * step]) * 1099511628211u;
  };
  if (rows * cols <= kPlaces * kWords) {
    for (int64_t row = 0; row < rows; ++row) take(row, 0, cols);
  } else {
    for (int64_t place = 0; place < kPlaces; ++place) {
      // Rows evenly, and columns by the golden ratio, which leaves no gap.
      const auto spread = static_cast<uint64_t>(place) * 2654435769u % static_cast<uint64_t>(cols);
      const int64_t col = static_cast<int64_t>(spread) / kWords * kWords;
      take(place * rows / kPlaces, col, std::min(cols, col + kWords));
    }
  }
  return static_cast<int64_t>(hash);
}

// A tensor that weights are packed from, and PyTorch's count of its changes: a slice of a parameter has none of its own.
struct Source {
  Tensor tensor;
  int64_t version;
};

// Returns weights, the first source, packed with the others by `pack` for a library, packing them if necessary: at
// first use, and after a change by PyTorch's count (as an optimizer's), by their fingerprint, or of `state`, all else
// that the packed weights depend on.
template <typename Pack>
Tensor packed(const void* library, const std::vector<Source>& from, State state, const Pack& pack) {
  Key key{reinterpret_cast<int64_t>(library)};
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> sources;
  for (const auto& [tensor, version] : from) {
    key.push_back(reinterpret_cast<int64_t>(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()));
    key.push_back(reinterpret_cast<int64_t>(tensor.const_data_ptr()));
    key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
    key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
    state.push_back(version);
    state.push_back(fingerprint(tensor));
    sources.push_back(tensor.storage().getWeakStorageImpl());
  }
  std::lock_guard<std::mutex> guard(packed_mutex);
  auto& all = all_packed();
  const auto found = all.find(key);
  if (found != all.end() && found->second.state == state) return found->second.panels;

  // While a weak reference lives, no other storage gets the same address.
  for (auto entry = all.begin(); entry != all.end();) {
    bool gone = false;
    for (const auto& source : entry->second.sources) gone |= source.expired();
    entry = gone ? all.erase(entry) : std::next(entry);
  }
  const Tensor panels = pack();
  all[key] = Packed{panels, state, sources};
  return panels;
}

// The same for weights and perhaps a bias; `version` is the count of the weights' changes.
template <typename Pack>
Tensor packed(const void* library, const Tensor& weight, const OptionalTensor& bias, int64_t version,
              const Pack& pack) {
  std::vector<Source> from{{weight, version}};
  if (bias) from.push_back({*bias, bias->_version()});
  return packed(library, from, {}, pack);
}

// Drops the weights packed from a tensor's storage, for all libraries.
void drop_packed(const Tensor& weight) {
  if (!weight.has_storage()) return;
  const auto* storage = weight.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  std::lock_guard<std::mutex> guard(packed_mutex);
  auto& all = all_packed();
  for (auto entry = all.begin(); entry != all.end();) {
    const bool of_it = entry->first[1] == reinterpret_cast<int64_t>(storage);
    entry = of_it ? all.erase(entry) : std::next(entry);
  }
}

}  // namespace
