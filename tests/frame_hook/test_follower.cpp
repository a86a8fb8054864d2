// Followers with toy classes: what compile(module) returns.
#include "frame_hook/follower.h"

#include "tests/frame_hook/support.h"

namespace framejit::testing {
namespace {

class FollowerTest : public FrameHookTest {
 protected:
  void SetUp() override {
    FrameHookTest::SetUp();
    never_compile();
    ns_.run(
        "class A:\n"
        "  word = 'a'\n"
        "  def __init__(self): self.x = 1\n"
        "  def __call__(self, y): return self.x + y\n"
        "  def me(self): return self\n"
        "  def kind(self): return type(self).__name__\n"
        "  @property\n"
        "  def twice(self): return self.x * 2\n"
        "class B(A):\n"
        "  word = 'b'\n"
        "  def __call__(self, y): return -y\n"
        "  def __len__(self): return 3\n"
        "calls = []\n"
        "def call(original, *args, **kwargs):\n"
        "  calls.append(original)\n"
        "  return original(*args, **kwargs)\n"
        "classes = {}\n"
        "def make_class(cls):\n"
        "  slots = ('_framejit_asked', '_framejit_call', '_framejit_class', "
        "'_framejit_original')\n"
        "  if cls not in classes:\n"
        "    classes[cls] = type.__new__(type(cls), cls.__name__, (cls,),\n"
        "                                {'__slots__': slots})\n"
        "    prepare(classes[cls])\n"
        "  return classes[cls]\n"
        "def derive(cls, old): return make_class(cls), call\n");
    static PyMethodDef prepare = {"prepare", prepare_class, METH_O, nullptr};
    ns_.set("prepare", Ref::steal(PyCFunction_New(&prepare, nullptr)).get());
    compile_in(ns_, "call");
    set_follower_deriver(ns_.get("derive").get());
  }
  void TearDown() override {
    set_follower_deriver(nullptr);
    FrameHookTest::TearDown();
  }
  static PyObject* prepare_class(PyObject*, PyObject* type) {
    bool done = make_follower_class(reinterpret_cast<PyTypeObject*>(type));
    return done ? Py_NewRef(Py_None) : nullptr;
  }
  void follow(const char* name, const char* original) {
    Ref type = ns_.eval("make_class(type(" + std::string(original) + "))");
    ASSERT_TRUE(type) << take_error();
    Ref made = Ref::steal(
        make_follower(reinterpret_cast<PyTypeObject*>(type.get()),
                      ns_.get(original).get(), ns_.get("call").get()));
    ASSERT_TRUE(made) << take_error();
    ns_.set(name, made.get());
  }

  Namespace ns_;
};

TEST_F(FollowerTest, CallsTheCompiledFunctionWithTheOriginal) {
  ns_.run("a = A()");
  follow("f", "a");
  EXPECT_EQ(ns_.repr("f(4)"), "5");
  EXPECT_EQ(ns_.repr("f(y=4)"), "5");
  EXPECT_TRUE(ns_.truth("calls == [a, a] and calls[0] is a"));
  EXPECT_EQ(ns_.repr("f()").substr(0, 9), "TypeError");
}

TEST_F(FollowerTest, AttributesAreTheOriginals) {
  ns_.run("a = A()");
  follow("f", "a");
  ns_.run("f.x = 5\na.z = 6\n");
  EXPECT_TRUE(ns_.truth("a.x == 5 and f.z == 6 and f.twice == 10"));
  EXPECT_TRUE(ns_.truth("f.__dict__ is a.__dict__ and vars(f) is vars(a)"));
  ns_.run("del f.z");
  EXPECT_TRUE(ns_.truth("not hasattr(a, 'z') and not hasattr(f, 'z')"));
  ns_.run("a.__dict__ = {'x': 9}");
  EXPECT_TRUE(ns_.truth("f.x == 9 and f(1) == 10"));
  ns_.run("f.__dict__ = {'x': 2}");
  EXPECT_TRUE(ns_.truth("a.x == 2 and f.__dict__ is a.__dict__"));
}

TEST_F(FollowerTest, MethodsAreBoundToTheFollower) {
  ns_.run("a = A()");
  follow("f", "a");
  EXPECT_TRUE(ns_.truth("f.me() is f and a.me() is a"));
  EXPECT_TRUE(ns_.truth("f.me.__self__ is f and f.kind() == 'A'"));
  ns_.run("a.bound = a.me");
  EXPECT_TRUE(ns_.truth("f.bound() is a"));  // the program's own object
  EXPECT_TRUE(ns_.truth("isinstance(f, A) and f.__class__ is A"));
}

TEST_F(FollowerTest, FollowsToAnotherClass) {
  ns_.run("a = A()");
  follow("f", "a");
  ns_.run("a.__class__ = B");
  EXPECT_TRUE(ns_.truth("f.word == 'b' and isinstance(f, B)"));
  EXPECT_TRUE(ns_.truth("f(4) == -4 and len(f) == 3 and f.x == 1"));
  ns_.run("f.__class__ = A");
  EXPECT_TRUE(ns_.truth("type(a) is A and f(4) == 5 and f.word == 'a'"));
  // At a call, too.
  ns_.run("a.__class__ = B");
  EXPECT_EQ(ns_.repr("f(4)"), "-4");
  EXPECT_TRUE(ns_.truth("len(f) == 3"));
}

TEST_F(FollowerTest, OtherInstancesOfItsClassArePlain) {
  ns_.run("a = A()");
  follow("f", "a");
  ns_.run("b = type(f)()\nb.x = 7");
  EXPECT_TRUE(ns_.truth("b(1) == 8 and b.me() is b and a.x == 1"));
  EXPECT_EQ(follower_original(ns_.get("b").get()), nullptr);
  EXPECT_EQ(follower_original(ns_.get("f").get()), ns_.get("a").get());
  EXPECT_EQ(follower_original(ns_.get("a").get()), nullptr);
}

TEST_F(FollowerTest, ReferencesGoWithIt) {
  ns_.run("import sys, weakref, gc\na = A()\nbefore = sys.getrefcount(a)");
  for (int i = 0; i < 10; ++i) {
    follow("f", "a");
    ns_.run("f(1)\nf.x = f.x\na.__class__ = B\nf(1)\na.__class__ = A\nf.me()");
  }
  ns_.run("calls.clear()\ndel f\ngc.collect()");
  EXPECT_TRUE(ns_.truth("sys.getrefcount(a) == before"));
  follow("f", "a");
  ns_.run("r = weakref.ref(a)\ndel a");
  EXPECT_TRUE(ns_.truth("f(1) == 2"));
  ns_.run("calls.clear()\ndel f\ngc.collect()");
  EXPECT_TRUE(ns_.truth("r() is None"));
}

TEST_F(FollowerTest, TheFinalizerIsTheOriginals) {
  ns_.run(
      "gone = []\n"
      "class F(A):\n  def __del__(self): gone.append(1)\n"
      "a = F()");
  follow("f", "a");
  ns_.run("del f");
  EXPECT_TRUE(ns_.truth("gone == []"));
  ns_.run("del a");
  EXPECT_TRUE(ns_.truth("gone == [1]"));
}

}  // namespace
}  // namespace framejit::testing
