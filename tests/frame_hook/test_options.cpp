// Options and the event log.
#include <cstdlib>

#include "tests/frame_hook/support.h"

namespace framejit::testing {
namespace {

class OptionsTest : public FrameHookTest {};

TEST_F(OptionsTest, EnvironmentIsReadAndValuesAreSettable) {
  EXPECT_EQ(options().recompile_limit, 8);
  setenv("FRAMEJIT_RECOMPILE_LIMIT", "3", 1);
  setenv("FRAMEJIT", "0", 1);
  setenv("FRAMEJIT_LOG", "guards,graphs", 1);
  setenv("FRAMEJIT_VERIFY", "perhaps", 1);  // malformed: the default stays
  setenv("FRAMEJIT_ISA", "", 1);            // as if it were not set
  EXPECT_EQ(options().recompile_limit, 8);  // read once
  reload_options();
  EXPECT_EQ(options().recompile_limit, 3);
  EXPECT_EQ(options().activation, "0");
  EXPECT_EQ(options().log, "guards,graphs");
  EXPECT_FALSE(options().verify);
  EXPECT_EQ(options().isa, "auto");
  ASSERT_EQ(refused_environment().size(), 1u);
  EXPECT_STREQ(refused_environment()[0].row->environment, "FRAMEJIT_VERIFY");
  EXPECT_EQ(refused_environment()[0].value, "perhaps");
  for (const OptionRow& row : option_rows()) unsetenv(row.environment);
  std::string error;
  EXPECT_TRUE(set_option("recompile_limit", "20", &error));
  EXPECT_EQ(option_text("recompile_limit"), "20");
  EXPECT_FALSE(set_option("recompile_limit", "many", &error));
  EXPECT_EQ(error,
            "recompile_limit: expected a whole number, 1 or more, got 'many'");
  EXPECT_FALSE(set_option("nonsense", "1", &error));
  EXPECT_EQ(error, "no option named 'nonsense'");
}

TEST_F(OptionsTest, EveryRowHasItsColumns) {
  EXPECT_EQ(option_rows().size(), 18u);
  for (const OptionRow& row : option_rows()) {
    EXPECT_EQ(std::string(row.environment).rfind("FRAMEJIT", 0), 0u);
    EXPECT_FALSE(std::string(row.help).empty());
    EXPECT_TRUE(set_option(row.keyword, option_text(row.keyword), nullptr));
  }
}

// Of each kind of row; every row is of one of them.
TEST_F(OptionsTest, ValuesAreCheckedByTheirRow) {
  const struct {
    const char *keyword, *value, *kept;  // kept: null if it is refused
  } cases[] = {
      {"isa", "aten", "aten"},
      {"isa", " Loops ", "loops"},
      {"isa", "avx9", nullptr},
      {"isa", "auto|aten", nullptr},
      {"activation", "on", "1"},
      {"activation", "False", "0"},
      {"activation", "yes", nullptr},
      {"strict", "true", "1"},
      {"strict", "2", nullptr},
      {"recompile_limit", " 5 ", "5"},
      {"recompile_limit", "0", nullptr},
      {"recompile_limit", "-1", nullptr},
      {"recompile_limit", "5x", nullptr},
      {"recompile_limit", "5.0", nullptr},
      {"recompile_limit", "99999999999", nullptr},
      {"log", "guards, Kernels,", "guards,kernels"},
      {"log", "guards,foo", nullptr},
      {"log", " , ,", nullptr},
      {"disable_pass", "dead_code", "dead_code"},
      {"disable_pass", "dce", nullptr},
      {"only", "a b|c", "a b|c"},
      {"only", "a.*, b:f ,", "a.*,b:f"},
      {"only", ",", nullptr},
  };
  for (const auto& row : cases) {
    std::string before = option_text(row.keyword), error;
    EXPECT_EQ(set_option(row.keyword, row.value, &error), row.kept != nullptr)
        << row.keyword << " " << row.value;
    EXPECT_EQ(option_text(row.keyword), row.kept ? row.kept : before);
    EXPECT_EQ(error.empty(), row.kept != nullptr);
    EXPECT_TRUE(set_option(row.keyword, "", &error));  // the default
  }
  for (const OptionRow& row : option_rows())
    EXPECT_EQ(option_text(row.keyword), row.default_text) << row.keyword;
}

TEST_F(OptionsTest, AcceptedValuesInWords) {
  EXPECT_EQ(accepted_text("a|b|c"), "a, b or c");
  EXPECT_EQ(accepted_text("a,b"), "any of a, b, comma-separated");
  EXPECT_EQ(accepted_text("3.."), "a whole number, 3 or more");
  EXPECT_EQ(accepted_text("<a folder>"), "a folder");
  EXPECT_EQ(accepted_text("<files>,.."), "files, comma-separated");
  EXPECT_EQ(accepted_words("a,b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(accepted_words("<a,b|c>").empty());
}

TEST_F(OptionsTest, TheRowOfLogNamesEveryChannel) {
  for (const OptionRow& row : option_rows()) {
    if (std::string_view(row.keyword) != "log") continue;
    std::vector<std::string> channels;
    for (int i = 0; i < static_cast<int>(Channel::kCount); ++i)
      channels.push_back(channel_name(Channel(i)));
    channels.push_back("all");
    EXPECT_EQ(accepted_words(row.accepted), channels);
  }
}

TEST_F(OptionsTest, CallsHaveRowsOfTheirOwn) {
  CallOptions own;
  std::string error;
  EXPECT_TRUE(set_call_option(&own, "recompile_limit", "3", &error));
  EXPECT_EQ(own.recompile_limit, 3);
  EXPECT_FALSE(own.max_instructions);
  EXPECT_FALSE(set_call_option(&own, "recompile_limit", "", &error));
  EXPECT_FALSE(set_call_option(&own, "isa", "aten", &error));
  EXPECT_EQ(error, "no option of compile() named 'isa'");
  for (const OptionRow& row : option_rows())
    EXPECT_EQ(set_call_option(&own, row.keyword, "1", nullptr), row.for_calls);
}

TEST_F(OptionsTest, ListContains) {
  EXPECT_TRUE(list_contains("cse,dce", "dce"));
  EXPECT_TRUE(list_contains("cse, dce ", "dce"));
  EXPECT_FALSE(list_contains("cse,dce", "d"));
  EXPECT_FALSE(list_contains("", "d"));
}

TEST_F(OptionsTest, EventsGoToTheSinkOfTheirChannel) {
  std::vector<std::string> received;
  set_event_sink([&](const Event& event) {
    received.push_back(std::string(channel_name(event.channel)) + ": " +
                       event.text);
    log_event(Channel::k_guards, "from the sink");  // not re-entered
  });
  EXPECT_TRUE(set_enabled_channels("guards"));
  EXPECT_TRUE(enabled(Channel::k_guards));
  EXPECT_FALSE(enabled(Channel::k_kernels));
  log_event(Channel::k_guards, "a");
  log_event(Channel::k_kernels, "b");
  EXPECT_EQ(received, std::vector<std::string>{"guards: a"});
  EXPECT_EQ(recent_events().size(), 3u);
  EXPECT_FALSE(set_enabled_channels("graphs,typo"));
  EXPECT_TRUE(enabled(Channel::k_graphs));
  EXPECT_TRUE(set_enabled_channels("all"));
  EXPECT_TRUE(enabled(Channel::k_kernels));
  EXPECT_TRUE(set_enabled_channels(""));
  set_event_sink(nullptr);
  for (int i = 0; i < 1000; ++i) log_event(Channel::k_graphs, "x");
  EXPECT_EQ(recent_events().size(), 256u);
}

}  // namespace
}  // namespace framejit::testing
