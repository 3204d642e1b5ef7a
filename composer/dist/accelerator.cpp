#include "composer/dist/accelerator.h"

#include <dlfcn.h>
#include <string>
#include <thread>

#include "composer/core/error.h"
#include "composer/device/device_support.h"

namespace composer::dist {
namespace {

constexpr std::chrono::seconds kAbort(5);

// The library is never unloaded, because its collectives may have running threads.
void* open(const std::string& path) { return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); }

// Looks beside libcomposer.so first, then where the dynamic linker looks.
void* open_library(const CollectivesLibrary& wanted) {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&open), &here) != 0 && here.dli_fname != nullptr) {
    const std::string path = here.dli_fname;
    const std::string folder = path.substr(0, path.find_last_of('/') + 1);
    for (const char* place : {"", "../lib/"})  // "../lib/" is for a program in bin/ that contains libcomposer
      if (void* library = open(folder + place + wanted.file)) return library;
  }
  const char* error = dlerror();
  const std::string first = error != nullptr ? error : "";
  if (void* library = open(wanted.file)) return library;
  throw ConfigError("World::use_device: ", wanted.file,
                    ", which has the collectives on GPUs, cannot be loaded: ", first, "; ", wanted.needs);
}

template <class Function>
Function* find(void* library, const char* file, const char* name) {
  if (void* found = dlsym(library, name)) return reinterpret_cast<Function*>(found);
  throw ConfigError("World::use_device: ", file, " has no function ", name, "; it is of another libcomposer");
}

}  // namespace

Accelerator::~Accelerator() {
  if (aborted_.valid()) aborted_.wait_for(kAbort);
}

void Accelerator::attach(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const StorePtr& store,
                         const Environment& environment, c10::Device device, std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  if (device_ == device) return;
  if (device_) throw ConfigError("World::use_device(", device, "): this rank uses ", *device_, " already");
  const auto wanted = device_support(device.type()).collectives();
  if (!wanted || !device.has_index())
    throw ConfigError("World::use_device(", device, "): there are collectives on the CPU and on a GPU such as cuda:0");
  void* library = open_library(*wanted);
  const int version = find<collectives::TorchVersion>(library, wanted->file, collectives::TORCH_VERSION_NAME)();
  if (version != collectives::TORCH)
    throw ConfigError("World::use_device: ", wanted->file, " was built for libtorch ", version, ", libcomposer for ",
                      collectives::TORCH, "; build both from the same folder");
  collectives::Abort* abort = find<collectives::Abort>(library, wanted->file, collectives::ABORT_NAME);
  collectives::Shutdown* shutdown = find<collectives::Shutdown>(library, wanted->file, collectives::SHUTDOWN_NAME);
  collectives::Attach* attach = find<collectives::Attach>(library, wanted->file, collectives::ATTACH_NAME);
  if (const char* error = attach(store.get(), group.get(), environment.rank, environment.world_size, device.index(),
                                 static_cast<std::int64_t>(timeout.count())))
    throw ConfigError("World::use_device(", device, "): ", error);
  device_ = device;
  group_ = group;
  abort_ = abort;
  shutdown_ = shutdown;
  maker_ = wanted->maker;
}

bool Accelerator::has(c10::Device device) {
  const std::lock_guard lock(mutex_);
  return device_ == device;
}

// The abort runs on a thread of its own, because it waits for kernels that may never end. The group is never destroyed:
// its destructor waits for these kernels, too, and ends the process if CUDA is gone by then.
void Accelerator::abort() {
  const std::lock_guard lock(mutex_);
  if (!group_) return;
  std::promise<void> aborted;
  aborted_ = aborted.get_future();
  std::thread([group = group_.release(), abort = abort_, aborted = std::move(aborted)]() mutable {
    abort(group);
    aborted.set_value();
  }).detach();
}

// shutdown() of the library may wait for other ranks. It is called without the lock, because the watchdog would wait
// for the lock.
void Accelerator::shutdown() {
  std::unique_lock lock(mutex_);
  const c10::intrusive_ptr<c10d::ProcessGroup> group = std::move(group_);
  collectives::Shutdown* const shutdown = shutdown_;
  const char* const maker = maker_;
  lock.unlock();
  if (!group) return;
  if (const char* error = shutdown(group.get())) warn(join("World::shutdown: ", maker, ": ", error));
}

}  // namespace composer::dist
