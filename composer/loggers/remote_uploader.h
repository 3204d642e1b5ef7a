#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/for_all_ranks.h"
#include "composer/core/record_destination.h"
#include "composer/core/time.h"
#include "composer/loggers/background_logger.h"

namespace composer::loggers {

struct RemoteUploaderOptions {
  // Required: s3://bucket/folder, https://host/folder or file:///folder. {run_name} and {rank} are replaced.
  std::string uri = {};
  std::int64_t capacity = 1024;  // >= 1; number of files that may wait; further ones are not uploaded
  std::int64_t attempts = 5;     // 1 to 100; tries of a request whose failure may be temporary
  Seconds flush_timeout{60};     // 0 to 86,400 s; longest time that the end of the run and flush() wait for uploads
  LogFailure on_failure = LogFailure::CONTINUE;  // CONTINUE: warn; FAIL: the end of the run also throws an error
};

// Uploads each file of Logger::upload_file() to uri + "/" + its name, in order, on a background thread. Training does
// not wait. An existing file at the destination is replaced only if `overwrite` is set for the file. The first failure
// becomes a warning at once. At the end of the run, a warning lists the files that were not uploaded.
//
// Throws ConfigError in the constructor for a URI that is not supported, and at INIT for missing credentials.
class COMPOSER_EXPORT RemoteUploader final : public RecordDestination, public ForAllRanks {
 public:
  explicit RemoteUploader(RemoteUploaderOptions options);
  ~RemoteUploader() override;  // cancels uploads unless close() was called
  RemoteUploader(RemoteUploader&&) noexcept;

  void log_record(const Record& record, const State& state) override;
  void flush() override;
  void init(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;

 private:
  struct Open;
  Open& open(const State& state);
  RemoteUploaderOptions options_;
  std::unique_ptr<Open> open_;
};

}  // namespace composer::loggers
