#include "composer/trainer/resume_with.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "composer/checkpoint/checkpoint_writer.h"
#include "composer/checkpoint/file_system.h"
#include "composer/checkpoint/name_format.h"
#include "composer/core/error.h"
#include "composer/net/remote_store.h"
#include "composer/trainer/common_checkpoint.h"
#include "composer/trainer/trainer_options.h"
#include "composer/util/name_format.h"

namespace composer {
namespace {

// An absolute path, because the program may change its working directory.
std::string absolute_folder(const std::string& given, const std::string& run_name) {
  return std::filesystem::absolute(saving::format_name(given, run_name));
}

bool same_folder(const std::string& a, const std::string& b, const std::string& run_name) {
  return saving::canonical_folder(absolute_folder(a, run_name)) ==
         saving::canonical_folder(absolute_folder(b, run_name));
}

using Saved = std::map<std::string, SavedPlaces>;

// The trainers that exist now.
struct LivingTrainers {
  std::mutex mutex;
  std::vector<const ResumesTogether*> all;
  std::int64_t made = 0;
  Saved saved;  // by folder, for trainers with resume_with, including destroyed ones
};

LivingTrainers& living_trainers() {
  // Never destroyed: a trainer may be a global, which is destroyed later.
  static auto* const living = new LivingTrainers;
  return *living;
}

// The id of the program that the existing trainers belong to. If a program makes these trainers again later, it counts
// as another program.
std::shared_ptr<const std::string> program_of_trainers() {
  static std::mutex mutex;
  static auto* const living = new std::weak_ptr<const std::string>;  // never destroyed, like living_trainers()
  const std::lock_guard lock(mutex);
  std::shared_ptr<const std::string> program = living->lock();
  if (!program) *living = program = std::make_shared<const std::string>(saving::new_id());
  return program;
}

using Folders = std::set<std::string>;

[[noreturn]] void fail_unnamed(const std::string& trainer, const std::string& folder) {
  throw ConfigError(
      "resume_with: the trainer whose save_folder is ", trainer, " does not name ", folder,
      ", so they would not resume together; let each of these trainers name the save_folders of all others");
}

// Throws unless two trainers would resume together with equal sets of trainers.
void check_same(const std::string& a, const Folders& of_a, const std::string& b, const Folders& of_b) {
  for (const std::string& folder : of_a)
    if (!of_b.contains(folder)) fail_unnamed(b, folder);
  for (const std::string& folder : of_b)
    if (!of_a.contains(folder)) fail_unnamed(a, folder);
}

// The checkpoints of a resumed trainer; later ones are deleted when its fit begins.
SavedPlaces places_until(const saving::Found& found, const std::string& folder) {
  std::vector<SavedPlace> places;
  for (const saving::Found& one : whole_checkpoints(folder, ""))
    if (one.manifest.program == found.manifest.program && !saving::is_older(found.manifest, one.manifest))
      places.push_back(place_of(one.manifest));
  return SavedPlaces(std::move(places));
}

// A trainer among the others that could not resume together with one that has the positions `own` after a save. Null:
// all could.
const std::string* find_apart(const SavedPlaces& own, const std::vector<std::string>& others, const Saved& saved) {
  std::vector<const SavedPlaces*> all = {&own};
  const std::string* apart = nullptr;
  for (const std::string& folder : others) {
    const SavedPlaces& other = saved.at(folder);
    all.push_back(&other);
    if (SavedPlaces::differ(own, other) || !SavedPlaces::have_way_back(std::array{&own, &other})) apart = &folder;
  }
  return apart || SavedPlaces::have_way_back(all) ? apart : &others.back();
}

std::string text_of(const SavedPlace& place) { return join("batch ", place.batch, " of fit ", place.fit); }

[[noreturn]] void fail_apart(const std::string& folder, const SavedPlaces& own, const std::string& other,
                             const SavedPlaces& saved) {
  const std::vector<SavedPlace> theirs = saved.all();
  const bool have_way_back = SavedPlaces::have_way_back(std::array{&own, &saved});
  throw ConfigError("resume_with: the trainer whose save_folder is ", folder, " would be saved at ",
                    text_of(own.all().back()), ", and the newest checkpoint of the one whose is ", other, " is ",
                    theirs.empty() ? "not there yet" : "of " + text_of(theirs.back()), ", so that after a kill ",
                    have_way_back
                        ? "they would go back further and further, to the last batch that both have saved"
                        : "they would have no checkpoint in common, and the program could not be started again",
                    "; let them train equally many batches, in turns that are no longer than save_interval",
                    have_way_back ? "" : ", or keep more checkpoints");
}

}  // namespace

ResumesTogether::ResumesTogether(const TrainerOptions& options, const std::string& run_name,
                                 const std::optional<saving::Found>& resumed)
    : folder_(absolute_folder(options.save_folder, run_name)),
      save_interval_(to_string(options.save_interval)),
      keep_(options.save_num_checkpoints_to_keep) {
  for (const std::string& folder : options.resume_with) named_.push_back(absolute_folder(folder, run_name));
  if (!named_.empty())
    program_ = resumed ? std::make_shared<const std::string>(resumed->manifest.program) : program_of_trainers();
  const std::lock_guard lock(living_trainers().mutex);
  number_ = ++living_trainers().made;
  if (!named_.empty()) find_begun();
  living_trainers().all.push_back(this);
  if (!named_.empty())
    living_trainers().saved[canonical_folder()] = resumed ? places_until(*resumed, folder_) : SavedPlaces();
}

// Finds trainers that are already training, which would be resumed from other batches than this one.
void ResumesTogether::find_begun() {
  for (const std::string& folder : named_) {
    const std::string named = saving::canonical_folder(folder);
    for (const ResumesTogether* one : living_trainers().all)
      if (one->has_begun_ && one->canonical_folder() == named) begun_before_.push_back(one->number_);
  }
}

ResumesTogether::~ResumesTogether() {
  const std::lock_guard lock(living_trainers().mutex);
  std::erase(living_trainers().all, this);
}

const std::string& ResumesTogether::canonical_folder() const {
  if (canonical_.empty()) canonical_ = saving::canonical_folder(folder_);
  return canonical_;
}

void ResumesTogether::check() const {
  const auto with = [](const ResumesTogether& one) {
    Folders all = {one.canonical_folder()};
    for (const std::string& folder : one.named_) all.insert(saving::canonical_folder(folder));
    return all;
  };
  const std::lock_guard lock(living_trainers().mutex);
  for (const ResumesTogether* other : living_trainers().all)
    if (std::ranges::find(begun_before_, other->number_) != begun_before_.end())
      throw ConfigError("resume_with: the trainer whose save_folder is ", canonical_folder(),
                        " was made after the one ", "whose is ", other->canonical_folder(),
                        " had trained, so they would go on from different ",
                        "batches; make all of these trainers again before one of them trains");
  const auto names_none = [](const ResumesTogether* one) { return one->named_.empty(); };
  if (std::ranges::all_of(living_trainers().all, names_none)) return;  // no folder has to be looked up
  const std::string& own = canonical_folder();
  const Folders ours = with(*this);
  Folders missing = ours;
  missing.erase(own);
  for (const ResumesTogether* other : living_trainers().all) {
    if (named_.empty() && names_none(other)) continue;
    const std::string& folder = other->canonical_folder();
    const Folders theirs = with(*other);
    missing.erase(folder);
    if (folder == own || (!ours.contains(folder) && !theirs.contains(own))) continue;
    check_same(own, ours, folder, theirs);
    if (save_interval_ != other->save_interval_)
      throw ConfigError("resume_with: the trainer whose save_folder is ", own, " has the save_interval ",
                        save_interval_, ", and the one whose is ", folder, " has ", other->save_interval_,
                        "; give all of these trainers the same, so that they are saved at the same batches");
  }
  if (!missing.empty())
    throw ConfigError("resume_with: no trainer of this program has the save_folder ", *missing.begin(),
                      "; make all trainers that resume together before the first of them trains, and name the ",
                      "save_folder of each");
}

void ResumesTogether::begin_fit() {
  const std::lock_guard lock(living_trainers().mutex);
  has_begun_ = true;
}

std::vector<std::string> ResumesTogether::named_folders() const {
  std::vector<std::string> folders;
  folders.reserve(named_.size());
  for (const std::string& named : named_) folders.push_back(saving::canonical_folder(named));
  return folders;
}

void ResumesTogether::plan_save(const SavedPlace& place) {
  const std::vector<std::string> others = named_folders();
  std::unique_lock lock(living_trainers().mutex);
  Saved& saved = living_trainers().saved;
  SavedPlaces& own = saved[canonical_folder()];
  for (;;) {
    std::vector<std::shared_future<bool>> awaited;
    for (const std::string& other : others) {
      saved[other].settle();
      if (saved[other].written().valid()) awaited.push_back(saved[other].written());
    }
    SavedPlaces after = own.with(place, keep_);
    const std::string* const apart = find_apart(after, others, saved);
    if (!apart) {
      before_plan_ = std::exchange(own, std::move(after));
      return;
    }
    if (awaited.empty()) fail_apart(canonical_folder(), after, *apart, saved[*apart]);
    lock.unlock();
    for (const auto& written : awaited) written.wait();
    lock.lock();
  }
}

void ResumesTogether::drop_plan() {
  const std::lock_guard lock(living_trainers().mutex);
  living_trainers().saved[canonical_folder()] = before_plan_;
}

void ResumesTogether::begin_writing(std::shared_future<bool> written) {
  const std::lock_guard lock(living_trainers().mutex);
  living_trainers().saved[canonical_folder()].begin_writing(std::move(written));
}

// A trainer that is ahead goes back by two checkpoints at most: one that others have not begun, and one that they have
// not finished.
void check_resume_with(const TrainerOptions& options) {
  constexpr std::int64_t kLeastKept = 3;
  if (options.resume_with.empty()) return;
  const char* wrong = nullptr;
  if (options.save_folder.empty()) wrong = "a save_folder";
  if (!resumes(options)) wrong = "autoresume, and no save_weights_only";
  if (options.save_best) wrong = "no save_best, which deletes others than the oldest";
  if (options.save_on_failure == saving::OnFailure::CONTINUE)
    wrong = "another save_on_failure than CONTINUE, with which one trainer trains on without checkpoints";
  const Interval& interval = options.save_interval;
  if (!wrong &&
      (interval.function() || (interval.time().as_double() != 0 && interval.time().unit() != TimeUnit::BATCH)))
    wrong = "a save_interval in ba, so that all are saved at the same batches";
  const auto is_batch = [](const util::NamePart& part) { return part.placeholder && part.name == "batch"; };
  if (!wrong && std::ranges::none_of(util::parts_of_name(options.save_filename), is_batch))
    wrong = "{batch} in save_filename, so that no checkpoint replaces the one before";
  if (wrong) throw ConfigError("resume_with: needs ", wrong);
  const std::int64_t kept = options.save_num_checkpoints_to_keep;
  if (kept >= 0 && kept < kLeastKept)
    throw ConfigError("resume_with: needs save_num_checkpoints_to_keep >= ", kLeastKept, ", or -1 for all, got ", kept);
  std::vector<std::string> folders = options.resume_with;
  folders.push_back(options.save_folder);
  for (const std::string& folder : folders) {
    if (net::is_uri(folder)) throw ConfigError("resume_with: is for folders of this machine, got ", folder);
    const bool is_own = &folder != &folders.back() && same_folder(folder, options.save_folder, options.run_name);
    if (is_own)
      throw ConfigError("resume_with: ", folder, " is the save_folder of this trainer itself; give each trainer a ",
                        "save_folder of its own, and name those of the others");
  }
}

}  // namespace composer
