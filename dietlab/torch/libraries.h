// Tuned libraries, opened once in a process, and what all their operators share: activations and derivatives.

#pragma once

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

#include <ATen/FuncTorchTLS.h>
#include <torch/csrc/autograd/custom_function.h>

#include "calls.h"

namespace {

// ---- A library and its functions ----

struct Library {
  TVMFFISafeCallType run, pack, packed_floats;
  Launch* launched_by;  // null in a library for one core
};

// Writes to `reason`, ending with a 0, why the library in a folder cannot run here; nothing if it can.
using Check = void (*)(const char* folder, char* reason, int64_t bytes);

// Python's, where there is Python: it reads the manifest.
std::atomic<Check> check{nullptr};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns Python's reason for the two faults that end a process: a truncated file, and instructions that the
// processor lacks. Empty if there is neither.
std::string reason_without_python(const std::string& folder) {
  const std::string manifest = text_of(folder + "/manifest.json");
  std::error_code failed;
  const auto bytes = std::to_string(std::filesystem::file_size(folder + "/library.so", failed));
  std::smatch found;
  const std::regex size("\"file_bytes\":\\s*(\\d+)");
  if (failed || !std::regex_search(manifest, found, size) || found[1] != bytes) {
    return folder + "/library.so, which is not as long as its manifest.json says. Copy both again.";
  }
  const std::regex used("\"requires\":\\s*\\{[^}]*\"instructions\":\\s*\\[([^\\]]*)\\]");
  if (!std::regex_search(manifest, found, used)) return "";
  std::istringstream known(text_of("/proc/cpuinfo"));
  const std::set<std::string> here(std::istream_iterator<std::string>(known), {});
  const std::string names = found[1];
  const std::regex quoted("\"([^\"]+)\"");
  for (std::sregex_iterator name(names.begin(), names.end(), quoted), end; name != end; ++name) {
    if (!here.count((*name)[1])) return "a processor without " + (*name)[1].str() + ".";
  }
  return "";
}

// Opens the library in a folder. If this process cannot run it, warns: PyTorch computes its layers.
std::optional<Library> open(const std::string& folder) {
  const std::string path = folder + "/library.so";
  std::string reason(1024, '\0');
  if (const Check look = check) {
    look(folder.c_str(), reason.data(), reason.size());
    reason.resize(reason.find('\0'));
  } else {
    reason = reason_without_python(folder);
  }
  void* handle = reason.empty() ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!handle) {
    if (reason.empty()) reason = dlerror();
    TORCH_WARN("dietlab: a layer's library must be loadable; got ", reason, reason.back() == '.' ? "" : ".",
               " PyTorch computes the layer. dietlab.torch.find_libraries(FOLDER), or DIETLAB_LIBRARIES=FOLDER in "
               "the environment, says where its study is now.");
    return std::nullopt;
  }
  auto function = [&](const char* name) {
    return reinterpret_cast<TVMFFISafeCallType>(dlsym(handle, name));
  };
  Library library{function("__tvm_ffi_run"), function("__tvm_ffi_pack"), function("__tvm_ffi_packed_floats"),
                  static_cast<Launch*>(dlsym(handle, "__TVMBackendParallelLaunch"))};
  TORCH_CHECK(library.run, "dietlab: ", path, " has a function `run`; it has none. Build it again.");
  return library;
}

std::mutex opened_mutex;
std::unordered_map<std::string, std::optional<Library>> opened;

// Folders to search for libraries that are not where they were when their model was saved.
std::vector<std::string> searched;

// Returns the present place of the library of a folder (STUDY/epilogues/DIGEST/library): the folder itself, or one
// of the same name in a searched folder. The digest identifies the library's contents.
std::string place_of(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code failed;
  auto holds = [&](const fs::path& place) { return fs::is_regular_file(place / "library.so", failed); };
  if (holds(folder)) return folder;
  const fs::path name = fs::path(folder).parent_path().filename() / fs::path(folder).filename();
  std::vector<std::string> roots;
  if (const char* given = std::getenv("DIETLAB_LIBRARIES")) {
    std::istringstream parts(given);
    for (std::string part; std::getline(parts, part, ':');) roots.push_back(part);
  }
  roots.insert(roots.end(), searched.begin(), searched.end());
  for (const fs::path root : roots) {
    for (const fs::path& place : {root / name, root / "epilogues" / name}) {
      if (holds(place)) return place;
    }
    for (auto study = fs::directory_iterator(root, failed); !failed && study != fs::directory_iterator(); ++study) {
      if (holds(study->path() / "epilogues" / name)) return study->path() / "epilogues" / name;
    }
  }
  return folder;
}

// Returns the library of a folder, or null if it cannot run.
const Library* library_of(c10::string_view folder) {
  const std::string key(folder);
  std::unique_lock<std::mutex> guard(opened_mutex);
  auto found = opened.find(key);
  if (found == opened.end()) {
    const std::string place = place_of(key);
    // Python may need its own lock meanwhile, and the holder of that may wait for this one.
    guard.unlock();
    const std::optional<Library> library = open(place);
    guard.lock();
    found = opened.emplace(key, library).first;
  }
  if (!found->second) return nullptr;
  // If the same file is also loaded through TVM, TVM sets this to its own threads.
  if (found->second->launched_by) *found->second->launched_by = &launch;
  return &*found->second;
}

void check_with(int64_t function) { check = reinterpret_cast<Check>(function); }

void find_libraries(c10::string_view folder) {
  std::lock_guard<std::mutex> guard(opened_mutex);
  searched.emplace_back(folder);
  for (auto entry = opened.begin(); entry != opened.end();) {
    entry = entry->second ? std::next(entry) : opened.erase(entry);
  }
}

// ---- Activations and derivatives ----

Tensor activated(const Tensor& y, c10::string_view activation) {
  if (activation == "none") return y;
  if (activation == "relu") return at::relu(y);
  return at::gelu(y, activation == "gelu_tanh" ? "tanh" : "none");
}

// Returns whether a derivative is needed that an autograd function of C++ does not have; PyTorch then computes all.
bool differentiated_otherwise(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                              at::TensorList others = {}) {
  auto forward_mode = [](const Tensor& tensor) { return tensor._fw_grad(0).defined(); };
  if (forward_mode(x) || forward_mode(weight) || (bias && forward_mode(*bias))) return true;
  if (std::any_of(others.begin(), others.end(), forward_mode)) return true;
  // torch.func (grad, jvp, vmap, ...): PyTorch uses this to check whether an autograd function may run inside.
  const auto& transforms = at::functorch::functorchTLSAccessor();
  if (!transforms) return false;
  try {
    transforms->checkSupportsCppAutogradFunction();
  } catch (const c10::Error&) {
    return true;
  }
  return false;
}

bool wants(const Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }
bool wants(const OptionalTensor& tensor) { return tensor && wants(*tensor); }

}  // namespace
