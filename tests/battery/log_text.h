#pragma once
// Everything that a rank is told to log, for comparisons with other ranks and with one process.
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/for_all_ranks.h"
#include "composer/core/logger.h"

namespace composer::test {

struct Logged {
  std::int64_t step = 0;
  double number = 0;
  std::string text = {};

  // To the bit.
  bool operator==(const Logged& other) const {
    return step == other.step && text == other.text &&
           std::bit_cast<std::uint64_t>(number) == std::bit_cast<std::uint64_t>(other.number);
  }
  bool is_close(const Logged& other) const {
    if (step != other.step || text != other.text) return false;
    if (number == other.number || (std::isnan(number) && std::isnan(other.number))) return true;
    return std::abs(number - other.number) <= 1e-3 * (std::abs(number) + std::abs(other.number)) + 1e-6;
  }
};
using LoggedByKey = std::map<std::string, std::vector<Logged>>;

// Works on every rank. Images, histograms and tables count as one number or text each.
class LogText final : public LoggerDestination, public ForAllRanks {
 public:
  void log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State&) override { add(metrics, step); }
  void log_hyperparameters(std::span<const LogEntry> entries, const State&) override { add(entries, 0); }
  void log_images(std::string_view key, const LogImages& images, std::int64_t step, const State&) override {
    logged[std::string(key)].push_back({step, images.images.to(at::kDouble).sum().item<double>()});
  }
  void log_histogram(std::string_view key, const LogHistogram& histogram, std::int64_t step, const State&) override {
    logged[std::string(key)].push_back({step, histogram.counts.to(at::kDouble).sum().item<double>()});
  }
  void log_table(std::string_view key, const LogTable& table, std::int64_t step, const State&) override {
    std::string text;
    for (const auto& row : table.rows)
      for (const LogValue& value : row)
        if (const auto* cell = std::get_if<std::string>(&value)) text += *cell + '\n';
    logged[std::string(key)].push_back({step, static_cast<double>(table.rows.size()), text});
  }
  void upload_file(const LogFile& file, const State&) override { logged["file " + file.name].push_back({}); }

  LoggedByKey logged;

 private:
  void add(std::span<const LogEntry> entries, std::int64_t step) {
    for (const auto& [key, value] : entries) {
      const auto* text = std::get_if<std::string>(&value);
      logged[std::string(key)].push_back({step, text ? 0 : to_number(value), text ? *text : ""});
    }
  }
};

// The keys whose values are not equal to the bit, or else not close.
inline std::vector<std::string> keys_that_differ(const LoggedByKey& a, const LoggedByKey& b, bool to_the_bit) {
  std::vector<std::string> keys;
  for (const auto* all : {&a, &b})
    for (const auto& [key, values] : *all)
      if (all == &a || !a.contains(key)) {
        const auto one = a.find(key), other = b.find(key);
        bool same = one != a.end() && other != b.end() && one->second.size() == other->second.size();
        for (std::size_t i = 0; same && i < one->second.size(); ++i)
          same = to_the_bit ? one->second[i] == other->second[i] : one->second[i].is_close(other->second[i]);
        if (!same) keys.push_back(key);
      }
  return keys;
}

}  // namespace composer::test
