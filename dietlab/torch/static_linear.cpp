// The operator dietlab::static_linear of PyTorch: a linear layer by programs that were tuned for one number of
// rows each. A folder has T=<rows>.so, with `main(x, packed, [bias], y)` and `pack(w, packed)`, and
// T=<rows>.json with the shape of packed weights (dietlab.compare.ansor).

#include <fstream>
#include <iterator>
#include <sstream>

#include "calls.h"

namespace {

// ---- Scratch memory of programs ----

// Freed blocks of a thread's programs, kept because the next call needs as much and new pages cost time.
struct Scratch {
  struct Block {
    void* start;
    size_t bytes;
  };
  std::vector<Block> used, spare;

  ~Scratch() {
    for (const Block& block : spare) std::free(block.start);
  }

  void* take(size_t bytes) {
    for (auto block = spare.begin(); block != spare.end(); ++block) {
      if (block->bytes < bytes) continue;
      used.push_back(*block);
      spare.erase(block);
      return used.back().start;
    }
    void* start = nullptr;
    if (posix_memalign(&start, 64, bytes) != 0) return nullptr;
    used.push_back({start, bytes});
    return start;
  }

  void give_back(void* start) {
    for (auto block = used.begin(); block != used.end(); ++block) {
      if (block->start != start) continue;
      spare.push_back(*block);
      used.erase(block);
      return;
    }
  }
};

thread_local Scratch scratch;

// As in tvm/runtime/c_backend_api.h.
void* take_scratch(int, int, uint64_t bytes, int, int) { return scratch.take(bytes); }

int give_scratch_back(int, int, void* start) {
  scratch.give_back(start);
  return 0;
}

// ---- Programs ----

struct Program {
  TVMFFISafeCallType main, pack;
  std::vector<int64_t> packed_shape;
};

// Returns the integers behind "packed_shape" in a program's JSON.
std::vector<int64_t> packed_shape_in(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}}, key = "\"packed_shape\": [";
  const size_t start = text.find(key);
  TORCH_CHECK(start != std::string::npos, "dietlab: ", path, " names the packed shape; it does not. Tune again.");
  std::istringstream numbers(text.substr(start + key.size()));
  std::vector<int64_t> shape;
  char comma = ',';
  for (int64_t extent; comma == ',' && numbers >> extent; numbers >> comma) shape.push_back(extent);
  return shape;
}

template <typename Function>
void provide(void* handle, const char* name, Function* function) {
  if (auto place = static_cast<Function**>(dlsym(handle, name))) *place = function;
}

Program open(const std::string& folder, int64_t rows) {
  const std::string path = folder + "/T=" + std::to_string(rows);
  void* handle = dlopen((path + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(handle, "dietlab: a layer is called with rows that a program was tuned for; got ", rows, ": ",
              dlerror(), ". Tune one: dietlab.evaluation.ansor.tune_static().");
  // Only this operator opens these files, so TVM does not replace these by functions of its own.
  provide(handle, "__TVMBackendParallelLaunch", &launch);
  provide(handle, "__TVMBackendAllocWorkspace", &take_scratch);
  provide(handle, "__TVMBackendFreeWorkspace", &give_scratch_back);
  return {reinterpret_cast<TVMFFISafeCallType>(dlsym(handle, "__tvm_ffi_main")),
          reinterpret_cast<TVMFFISafeCallType>(dlsym(handle, "__tvm_ffi_pack")),
          packed_shape_in(path + ".json")};
}

std::mutex opened_mutex;

const Program& program_of(c10::string_view folder, int64_t rows) {
  static std::unordered_map<std::string, std::unordered_map<int64_t, Program>> opened;
  std::lock_guard<std::mutex> guard(opened_mutex);
  auto& programs = opened[std::string(folder)];
  auto found = programs.find(rows);
  if (found == programs.end()) found = programs.emplace(rows, open(std::string(folder), rows)).first;
  return found->second;
}

// ---- dietlab::static_linear ----

// Returns the tensor for programs: contiguous, and aligned to 64 bytes.
Tensor aligned(const Tensor& tensor) {
  const Tensor whole = tensor.contiguous();
  return reinterpret_cast<uintptr_t>(whole.data_ptr()) % 64 ? whole.clone() : whole;
}

Tensor static_linear_cpu(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                         c10::string_view folder) {
  TORCH_CHECK(served(x) && served(weight) && (!bias || served(*bias)) && weight.dim() == 2 && x.dim() > 0 &&
                  x.size(-1) == weight.size(1) && weight.numel() > 0,
              "dietlab: programs for one number of rows take float32 tensors of a layer, on the CPU; got ",
              x.toString(), " of ", x.sizes(), " for weights of ", weight.sizes());
  const int64_t n = weight.size(0), k = weight.size(1), rows = x.numel() / k;
  const Program& program = program_of(folder, rows);
  const Tensor panels = packed(&program, weight, std::nullopt, weight._version(), [&] {
    const Tensor w = aligned(weight), laid_out = at::empty(program.packed_shape, weight.options());
    Seen w_array(w), laid_out_array(laid_out);
    call(program.pack, w_array, laid_out_array);
    return laid_out;
  });
  auto shape = x.sizes().vec();
  shape.back() = n;
  const Tensor source = aligned(x), y = at::empty(shape, x.options());
  Seen panels_array(panels);
  Array<2> x_array(source, {rows, k}), y_array(y, {rows, n});
  if (bias) {
    const Tensor b = aligned(*bias);
    Seen b_array(b);
    call(program.main, x_array, panels_array, b_array, y_array);
  } else {
    call(program.main, x_array, panels_array, y_array);
  }
  return y;
}

// What comes out, for any length, without computing it.
Tensor static_linear_meta(const Tensor& x, const Tensor& weight, const OptionalTensor&, c10::string_view) {
  auto shape = x.sym_sizes().vec();
  shape.back() = weight.sym_size(0);
  return at::empty_symint(shape, x.options());
}

Tensor static_linear_autograd(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                              c10::string_view folder) {
  static auto op = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("dietlab::static_linear", "")
                       .typed<decltype(static_linear_cpu)>();
  const bool wanted = x.requires_grad() || weight.requires_grad() || (bias && bias->requires_grad());
  TORCH_CHECK(!(at::GradMode::is_enabled() && wanted),
              "dietlab: programs for one number of rows have no gradients. Call the model in torch.no_grad().");
  at::AutoDispatchBelowADInplaceOrView below;
  return op.call(x, weight, bias, folder);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(dietlab, m) {
  const std::vector<at::Tag> tags{at::Tag::needs_contiguous_strides, at::Tag::pt2_compliant_tag};
  m.def("static_linear(Tensor x, Tensor weight, Tensor? bias, str folder) -> Tensor", tags);
}

TORCH_LIBRARY_IMPL(dietlab, CPU, m) { m.impl("static_linear", &static_linear_cpu); }

TORCH_LIBRARY_IMPL(dietlab, Meta, m) { m.impl("static_linear", &static_linear_meta); }

TORCH_LIBRARY_IMPL(dietlab, Autograd, m) { m.impl("static_linear", &static_linear_autograd); }
