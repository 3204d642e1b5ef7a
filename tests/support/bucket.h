#pragma once
// Runs whose save_folder is in a bucket.
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tests/support/fake_s3.h"
#include "tests/support/folder.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"

namespace composer::test {

using test::contains;

// A bucket, and a cache folder of its own for what waits to be uploaded.
struct Bucket {
  Bucket() : server_variables(variables_of(server)), cache_variable({{"XDG_CACHE_HOME", cache.path()}}) {}
  std::vector<std::string> complete() const {
    std::vector<std::string> names;
    for (const auto& [key, content] : server.objects())
      if (key.ends_with("/manifest.json")) names.push_back(key.substr(0, key.rfind('/')));
    return names;
  }
  void forget_machine() const { std::filesystem::remove_all(cache / "libcomposer"); }

  FakeS3 server;
  Folder cache;
  Variables server_variables, cache_variable;
};

inline TrainerOptions bucket_options(const char* duration, const char* interval = "1ep") {
  TrainerOptions options = tiny_options();
  options.save_folder = "s3://b/runs/{run_name}";
  options.max_duration = Time::parse(duration);
  options.save_interval = Time::parse(interval);
  return options;
}

inline at::Tensor trained(const TrainerOptions& options, std::string* from = nullptr) {
  Trainer trainer(options);
  trainer.fit();
  if (from != nullptr) *from = trainer.resumed_from();
  return weights_of(trainer);
}

}  // namespace composer::test
