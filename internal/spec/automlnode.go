package spec

func (s *scope) automlNode(g *graph, name string, v *value) any {
	s.fail(v, "automl nodes are not supported yet")
	return nil
}
