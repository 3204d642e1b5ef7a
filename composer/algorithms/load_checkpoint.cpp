#include "composer/algorithms/load_checkpoint.h"

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/option.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "composer/net/http.h"
#include "composer/net/remote_store.h"
#include "composer/util/absolute_format.h"

namespace composer::algorithms {
namespace {

bool is_load(Event event) { return event == Event::BEFORE_LOAD || event == Event::AFTER_LOAD; }

bool is_start(Event event) { return event == Event::INIT || is_load(event) || event == Event::FIT_START; }

std::vector<Option<LoadCheckpointOptions>> load_checkpoint_options() {
  using O = LoadCheckpointOptions;
  // Reports the path as it was given, because a resumed run may have another working directory, but without a URL's
  // signature.
  const auto shown = [](const std::string& path) { return net::is_uri(path) ? net::shown_url(path) : path; };
  return all_options(option("load_path", &O::load_path).shown(shown),
                     option("load_weights_only", &O::load_weights_only),
                     option("strict_model_weights", &O::strict_model_weights),
                     option("ignore_keys", &O::ignore_keys).shown([](const auto& keys) { return listed(keys); }),
                     part("event", &O::event, "an event").shown([](Event at) { return std::string(to_string(at)); }));
}

}  // namespace

LoadCheckpoint::LoadCheckpoint(LoadCheckpointOptions options) : options_(std::move(options)) {
  if (options_.load_path.empty()) throw ConfigError("LoadCheckpoint: load_path is required");
  const bool is_here = options_.load_path.find("://") == std::string::npos;
  path_ = is_here ? util::absolute_format(options_.load_path) : options_.load_path;
  if (!options_.load_weights_only && !is_load(options_.event))
    throw ConfigError("LoadCheckpoint: at ", to_string(options_.event),
                      " only weights can be loaded; set load_weights_only, or the event BEFORE_LOAD or AFTER_LOAD");
}

StateDict LoadCheckpoint::local_hparams() const { return describe(options_, load_checkpoint_options()); }

bool LoadCheckpoint::match(Event event, const State& state) const {
  return state.run && !(state.resumes && is_start(event));
}

void LoadCheckpoint::apply(Event, State& state, Logger&) {
  state.run->load({.path = path_,
                   .weights_only = options_.load_weights_only,
                   .strict_model_weights = options_.strict_model_weights,
                   .ignore_keys = options_.ignore_keys});
}

}  // namespace composer::algorithms
