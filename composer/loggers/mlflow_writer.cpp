#include "composer/loggers/mlflow_writer.h"

#include <algorithm>
#include <cmath>
#include <fnmatch.h>
#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/core/scalar.h"
#include "composer/loggers/format.h"
#include "composer/loggers/json_text.h"
#include "composer/net/http.h"
#include "composer/util/png.h"
#include "composer/util/wall_clock.h"

namespace composer::loggers {
namespace {

bool fits_any(const std::string& key, const std::vector<std::string>& globs) {
  return std::ranges::any_of(globs,
                             [&](const std::string& glob) { return ::fnmatch(glob.c_str(), key.c_str(), 0) == 0; });
}

std::string text_for_mlflow(const LogValue& value) {
  const Scalar scalar = read_scalar(value);
  if (const auto* text = std::get_if<std::string>(&scalar)) return *text;
  if (const auto* flag = std::get_if<bool>(&scalar)) return *flag ? "True" : "False";
  std::string json;
  append_json(json, scalar);
  std::erase(json, '"');  // quotes of nan and inf
  return json;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

std::string list_of(const at::Tensor& numbers) {
  std::string list;
  const at::Tensor doubles = numbers.to(at::kDouble).contiguous();
  for (std::int64_t i = 0; i < doubles.numel(); ++i) {
    if (i > 0) list += ',';
    append_json(list, doubles.const_data_ptr<double>()[i]);
  }
  return '[' + list + ']';
}

}  // namespace

MlflowWriter::MlflowWriter(const MLFlowLoggerOptions& options, std::unique_ptr<MlflowStore> store, std::string where)
    : options_(options), where_(std::move(where)), store_(std::move(store)) {}

bool MlflowWriter::takes(const Record& record) const {
  if (record.get<LogFile>() != nullptr) return options_.log_artifacts;
  return record.kind() != Record::Kind::TRACES;
}

void MlflowWriter::begin(const std::string& experiment, const std::string& name, const MlflowTexts& tags) {
  id_ = store_->begin(experiment, name, tags, mlflow_time(seconds_since_1970()));
}

bool MlflowWriter::resume(const std::string& run_id, std::int64_t time) {
  MlflowPast past;
  if (!store_->resume(run_id, time, past)) return false;
  id_ = run_id;
  params_ = std::move(past.params);
  for (const auto& [name, point] : past.last) last_[name] = point;
  earliest_ = time + 1;
  return true;
}

std::int64_t MlflowWriter::end_of_points() {
  const std::int64_t end = std::max(mlflow_time(seconds_since_1970()), earliest_.load());
  earliest_ = end + 1;
  return end;
}

// An HTTP error that may pass is rethrown, because all later requests would fail, too. Any other error loses only this
// item.
template <class Send>
void MlflowWriter::attempt(std::int64_t count, const Send& send) {
  try {
    send();
  } catch (const net::HttpError& error) {
    if (error.may_pass) throw;
    lose(count, error.what());
  } catch (const std::exception& error) {
    lose(count, describe(error));
  }
}

void MlflowWriter::write(Records records) {
  Batch batch;
  for (const Record* record : records) add(batch, *record);
  if (!batch.params.empty()) attempt(1, [&] { store_->log_params(batch.params); });
  if (!batch.tags.empty()) attempt(1, [&] { store_->set_tags(batch.tags); });
  if (!batch.metrics.empty())
    attempt(static_cast<std::int64_t>(records.size()), [&] {
      if (const MlflowLost lost = store_->log_metrics(batch.metrics); lost.metrics > 0) lose(lost.metrics, lost.reason);
    });
  for (const MlflowArtifact& artifact : batch.artifacts) attempt(1, [&] { store_->log_artifact(artifact); });
}

void MlflowWriter::close() { store_->end(status_, mlflow_time(seconds_since_1970())); }

void MlflowWriter::add(Batch& batch, const Record& record) {
  if (record.kind() == Record::Kind::HYPERPARAMETERS) return add_params(batch, record);
  if (record.kind() == Record::Kind::METRICS) return add_metrics(batch, record);
  add_content(batch, record);
}

const MlflowWriter::Target& MlflowWriter::target_of(std::string_view key) {
  Target& target = targets_[key];
  if (std::exchange(target.is_known, true)) return target;
  const std::string name(key);
  if (fits_any(name, options_.ignore_metrics)) return target;
  const auto renamed = options_.rename_metrics.find(name);
  target.name = mlflow_key(renamed == options_.rename_metrics.end() ? name : renamed->second);
  target.last = &last_[target.name];
  return target;
}

void MlflowWriter::add_metrics(Batch& batch, const Record& record) {
  const std::int64_t time = earliest_ = std::max(mlflow_time(record.wall_time()), earliest_.load());
  for (const auto& [key, value] : record.entries()) {
    const Target& target = target_of(key);
    if (target.last == nullptr) continue;
    if (std::holds_alternative<std::string>(value)) {
      batch.tags[target.name] = mlflow_text(std::get<std::string>(value), kMlflowTag);
      continue;
    }
    const double number = to_number(value);
    std::optional<MlflowPoint>& last = *target.last;
    if (last && same(last->value, number) && record.step() > last->step &&
        record.step() < last->step + options_.log_duplicated_metric_every_n_steps)
      continue;
    last = MlflowPoint{number, record.step()};
    batch.metrics.push_back({target.name, number, time, record.step()});
  }
}

// A param cannot be changed, so a new value of it becomes a tag.
void MlflowWriter::add_params(Batch& batch, const Record& record) {
  for (const auto& [key, value] : record.entries()) {
    if (fits_any(std::string(key), options_.ignore_hyperparameters)) continue;
    const std::string name = mlflow_key(key);
    const std::string text = text_for_mlflow(value), param = mlflow_text(text, kMlflowParam);
    const auto [known, is_new] = params_.try_emplace(name, param);
    if (is_new)
      batch.params[name] = param;
    else if (known->second != param)
      batch.tags[name] = mlflow_text(text, kMlflowTag);
  }
}

void MlflowWriter::add_content(Batch& batch, const Record& record) const {
  if (const auto* file = record.get<LogFile>()) {
    batch.artifacts.push_back({mlflow_key(file->name), {}, file->path, file->overwrite});
    return;
  }
  const std::string end = join('/', mlflow_key(record.key()), '/', record.step());
  if (const auto* images = record.get<LogImages>()) {
    util::Pngs pngs = util::png_files(*images, options_.max_images);
    for (std::size_t i = 0; i < pngs.files.size(); ++i)
      batch.artifacts.push_back({join("images", end, '_', i, ".png"), std::move(pngs.files[i]), {}});
    for (const LogMask& mask : images->masks) {
      util::Pngs masks = util::mask_png_files(mask.classes, options_.max_images);
      for (std::size_t i = 0; i < masks.files.size(); ++i)
        batch.artifacts.push_back(
            {join("images", end, '_', i, '_', mlflow_key(mask.name), ".png"), std::move(masks.files[i]), {}});
    }
  }
  if (const auto* table = record.get<LogTable>())
    batch.artifacts.push_back({"tables" + end + ".json", json_text(*table), {}});
  if (const auto* histogram = record.get<LogHistogram>())
    batch.artifacts.push_back(
        {"histograms" + end + ".json",
         join(R"({"counts":)", list_of(histogram->counts), R"(,"edges":)", list_of(histogram->edges), '}'),
         {}});
}

}  // namespace composer::loggers
