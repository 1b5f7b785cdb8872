package guest

import (
	"context"
	"crypto/sha256"
	"io"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// fileService answers the calls of v1.Files.
type fileService struct{ *Guest }

func (s *fileService) Find(ctx context.Context, r *connect.Request[guestv1.FindRequest]) (*connect.Response[guestv1.ListDirResponse], error) {
	match, err := parseGlobs([]string{r.Msg.Glob})
	if err != nil {
		return nil, err
	}
	list := r.Msg.List
	if list == nil {
		list = &guestv1.ListDirRequest{}
	}
	if list.Depth == 0 {
		list.Depth = int32(match.reach())
	}
	entries, more, err := s.find(ctx, list, match)
	return answer(&guestv1.ListDirResponse{Entries: entries, More: more}, err)
}

func (s *fileService) Change(ctx context.Context, r *connect.Request[guestv1.ChangeRequest]) (*connect.Response[guestv1.ChangeResponse], error) {
	info, err := s.change(ctx, r.Msg)
	return answer(&guestv1.ChangeResponse{Info: info}, err)
}

func (s *fileService) Copy(ctx context.Context, r *connect.Request[guestv1.CopyRequest]) (*connect.Response[guestv1.CopyResponse], error) {
	info, err := s.copy(ctx, r.Msg)
	return answer(&guestv1.CopyResponse{Info: info}, err)
}

func (s *fileService) Link(_ context.Context, r *connect.Request[guestv1.LinkRequest]) (*connect.Response[guestv1.LinkResponse], error) {
	info, err := s.link(r.Msg)
	return answer(&guestv1.LinkResponse{Info: info}, err)
}

func (s *fileService) Hash(ctx context.Context, r *connect.Request[guestv1.HashRequest]) (*connect.Response[guestv1.HashResponse], error) {
	f, _, err := s.openToRead(string(r.Msg.Path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.CopyBuffer(onlyWriter{h}, &steady{ctx, f}, make([]byte, 128<<10))
	return answer(&guestv1.HashResponse{Sha256: h.Sum(nil), Size: n}, fromOS(err))
}

func (s *fileService) GetAttributes(_ context.Context, r *connect.Request[guestv1.GetAttributesRequest]) (*connect.Response[guestv1.GetAttributesResponse], error) {
	all, err := s.getAttributes(string(r.Msg.Path))
	return answer(&guestv1.GetAttributesResponse{Attributes: all}, err)
}

func (s *fileService) SetAttributes(_ context.Context, r *connect.Request[guestv1.SetAttributesRequest]) (*connect.Response[guestv1.SetAttributesResponse], error) {
	all, err := s.setAttributes(r.Msg)
	return answer(&guestv1.SetAttributesResponse{Attributes: all}, err)
}
