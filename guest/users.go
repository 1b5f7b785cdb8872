package guest

import (
	"strconv"
	"strings"
	"syscall"
)

// defaultUser is who processes run as and files belong to when none is named,
// if the image has it; otherwise root is.
const defaultUser = "user"

// account is who a process runs as.
type account struct {
	name, home, shell string
	uid, gid          uint32
	groups            []uint32 // supplementary
}

// findAccount resolves "name", "uid" or "uid:gid"; "" is the default user. A
// number needs no entry in the database.
func findAccount(spec string) (account, error) {
	users := readPasswd()
	if spec == "" {
		spec = defaultUser
		if _, ok := find(users, func(a account) bool { return a.name == spec }); !ok {
			spec = "root"
		}
	}
	who, group, hasGroup := strings.Cut(spec, ":")
	a, ok := find(users, func(a account) bool { return a.name == who })
	if !ok {
		uid, err := strconv.ParseUint(who, 10, 32)
		if err != nil {
			if who == "root" {
				return account{name: "root", home: "/root", shell: "/bin/sh"}, nil
			}
			return account{}, refuse(notFound, "name a user of /etc/passwd, or give a number", "no user %.80q", who)
		}
		if a, ok = find(users, func(a account) bool { return a.uid == uint32(uid) }); !ok {
			a = account{name: who, uid: uint32(uid), gid: uint32(uid), home: "/", shell: "/bin/sh"}
		}
	}
	if hasGroup {
		gid, err := strconv.ParseUint(group, 10, 32)
		if err != nil {
			return account{}, refuse(invalid, "give a user as name, uid or uid:gid", "group %.80q is not a number", group)
		}
		a.gid = uint32(gid)
		return a, nil
	}
	a.groups = groupsOf(a.name, a.gid)
	return a, nil
}

// credential is a as the kernel takes it.
func (a account) credential() *syscall.Credential {
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}
}

func find(all []account, is func(account) bool) (account, bool) {
	for _, a := range all {
		if is(a) {
			return a, true
		}
	}
	return account{}, false
}

func readPasswd() []account {
	var all []account
	passwd.each(func(line string) {
		if a, ok := parsePasswd(line); ok {
			all = append(all, a)
		}
	})
	return all
}

// parsePasswd reads "name:password:uid:gid:comment:home:shell".
func parsePasswd(line string) (account, bool) {
	f := strings.Split(line, ":")
	if len(f) != 7 || f[0] == "" {
		return account{}, false
	}
	uid, err1 := strconv.ParseUint(f[2], 10, 32)
	gid, err2 := strconv.ParseUint(f[3], 10, 32)
	if err1 != nil || err2 != nil {
		return account{}, false
	}
	a := account{name: f[0], uid: uint32(uid), gid: uint32(gid), home: f[5], shell: f[6]}
	if a.home == "" {
		a.home = "/"
	}
	if a.shell == "" {
		a.shell = "/bin/sh"
	}
	return a, true
}

// maxGroups is how many supplementary groups Linux takes.
const maxGroups = 65536

func groupsOf(user string, gid uint32) []uint32 {
	all := []uint32{gid}
	groups.each(func(line string) {
		if g, ok := parseGroup(line); ok && g.gid != gid && len(all) < maxGroups && g.has(user) {
			all = append(all, g.gid)
		}
	})
	return all
}

type group struct {
	name    string
	gid     uint32
	members string // comma between them
}

func (g group) has(user string) bool {
	for m := range strings.SplitSeq(g.members, ",") {
		if m == user {
			return true
		}
	}
	return false
}

// parseGroup reads "name:password:gid:member,member".
func parseGroup(line string) (group, bool) {
	f := strings.Split(line, ":")
	if len(f) != 4 || f[0] == "" {
		return group{}, false
	}
	gid, err := strconv.ParseUint(f[2], 10, 32)
	return group{f[0], uint32(gid), f[3]}, err == nil
}

// names gives owners' names for numbers, reading each database at most once.
type names struct {
	users, groups map[uint32]string
}

func (n *names) user(uid uint32) string {
	if n.users == nil {
		n.users = map[uint32]string{}
		for _, a := range readPasswd() {
			setFirst(n.users, a.uid, a.name)
		}
	}
	return n.users[uid]
}

func (n *names) group(gid uint32) string {
	if n.groups == nil {
		n.groups = map[uint32]string{}
		groups.each(func(line string) {
			if g, ok := parseGroup(line); ok {
				setFirst(n.groups, g.gid, g.name)
			}
		})
	}
	return n.groups[gid]
}

// setFirst keeps the first name of a number, at most 255 bytes of valid UTF-8.
func setFirst(m map[uint32]string, id uint32, name string) {
	if _, ok := m[id]; !ok && len(name) <= 255 {
		m[id] = strings.ToValidUTF8(name, "\uFFFD")
	}
}
