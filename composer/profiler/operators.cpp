#include "composer/profiler/operators.h"

#include <cstdlib>
#include <exception>
#include <set>

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/api.h>

#include "composer/core/error.h"

namespace composer::profiler {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType, torch::profiler::impl::ProfilerConfig, torch::profiler::impl::ProfilerState;

ProfilerConfig config(bool shapes) { return ProfilerConfig(ProfilerState::KINETO, /*report_input_shapes=*/shapes); }

std::set<ActivityType> activities(std::optional<ActivityType> kernels) {
  return kernels ? std::set{ActivityType::CPU, *kernels} : std::set{ActivityType::CPU};
}

std::string shapes_of(const kineto::KinetoEvent& event) {
  std::string text;
  for (const std::vector<std::int64_t>& sizes : event.shapes()) {
    text += text.empty() ? "[" : " [";
    for (std::size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
    text += ']';
  }
  return text;
}

// Throws if libtorch's profiler is running: starting a second one would end the first.
void check_is_free() {
  if (torch::profiler::impl::profilerEnabled()) throw Error("libtorch's profiler: is in use");
}

// Whether the event is a call, rather than a note, such as those on memory.
bool is_call(const kineto::KinetoEvent& event) { return !event.name().starts_with('['); }

}  // namespace

OperatorRecorder::~OperatorRecorder() {
  if (started_) try {
      stop();
    } catch (...) {
      warn(join("profiler: ", describe(std::current_exception())));
    }
}

void OperatorRecorder::prepare() {
  if (prepared_) return;
  check_is_free();
  // Without this variable, kineto writes to stderr that it begins, that it ends, and that there is no GPU.
  static const int quiet = ::setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);
  (void)quiet;
  try {
    kineto::prepareProfiler(config(shapes_), activities(kernels_));
  } catch (const c10::Error& error) {
    throw Error("libtorch's profiler: ", error.what_without_backtrace());
  }
  prepared_ = true;
}

void OperatorRecorder::start() {
  prepare();
  check_is_free();
  try {
    kineto::enableProfiler(config(shapes_), activities(kernels_));
  } catch (const c10::Error& error) {
    throw Error("libtorch's profiler: ", error.what_without_backtrace());
  }
  started_ = true;
}

std::vector<OperatorCall> OperatorRecorder::stop() {
  started_ = prepared_ = false;
  std::vector<OperatorCall> calls;
  try {
    const std::unique_ptr<kineto::ProfilerResult> result = kineto::disableProfiler();
    calls.reserve(result->events().size());
    for (const kineto::KinetoEvent& event : result->events()) {
      if (!is_call(event)) continue;
      const bool on_host = event.deviceType() == c10::DeviceType::CPU;
      calls.push_back({.name = event.name(),
                       .begin_ns = static_cast<std::int64_t>(event.startNs()),
                       .duration_ns = static_cast<std::int64_t>(event.durationNs()),
                       .thread = on_host ? event.startThreadId() : static_cast<std::uint64_t>(event.deviceResourceId()),
                       .device = on_host ? -1 : event.deviceIndex(),
                       .shapes = shapes_ ? shapes_of(event) : std::string()});
    }
  } catch (const c10::Error& error) {
    throw Error("libtorch's profiler: ", error.what_without_backtrace());
  }
  return calls;
}

}  // namespace composer::profiler
