#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/state.h"
#include "composer/core/time.h"
#include "composer/loggers/background_logger.h"

namespace composer::loggers {

struct SlackEntry {
  std::string key, value;
  std::int64_t step = 0;
};

struct SlackLoggerOptions {
  std::vector<std::string> include_keys = {};  // required: regular expressions; keys that begin with a match are sent
  // Makes the blocks of a message, as a JSON array. Called by a background thread. Empty: the step as a header, then a
  // line for each entry.
  std::function<std::string(const std::vector<SlackEntry>& entries)> formatter_func = {};
  Time log_interval = "1ep";               // in ep or ba, >= 1; how often logged entries are sent
  std::int64_t max_logs_per_message = 50;  // 1 to 50 entries; further ones are sent in further messages
  std::string webhook_url = {};            // an incoming webhook of Slack; empty: the key and the channel are used
  // A token with the scope chat:write. Empty: SLACK_LOGGING_API_KEY of the environment.
  std::string slack_logging_api_key = {};
  std::string channel_id = {};                    // empty: SLACK_LOGGING_CHANNEL_ID of the environment
  std::string api_url = "https://slack.com/api";  // address of the API
  std::int64_t attempts = 3;  // 1 to 10; tries for each message, with growing pauses, once Slack has answered
};

// Sends metrics and hyperparameters with included keys to a Slack channel, on a background thread: at the end of the
// first epoch (or batch, for an interval in batches), then at every interval, and at the end of the fit. In a run of
// several processes, only rank 0 sends. Messages that Slack does not accept are counted, and never end the run.
//
// The constructor throws ConfigError for invalid options, and if there is neither a webhook nor a key with a channel.
class COMPOSER_EXPORT SlackLogger final : public BackgroundLogger {
 public:
  explicit SlackLogger(SlackLoggerOptions options);
  ~SlackLogger() override;
  SlackLogger(SlackLogger&&) noexcept;

  void log_record(const Record& record, const State& state) override;
  void batch_end(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;

 private:
  struct Filter;
  std::shared_ptr<RecordWriter> make_writer(const State& state) override;
  std::span<const LogEntry> included(std::span<const LogEntry> entries);
  void end_message(const State& state, Logger& logger);
  SlackLoggerOptions options_;
  std::unique_ptr<Filter> filter_;
};

}  // namespace composer::loggers
